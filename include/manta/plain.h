// PlainValue<T> is a T on its way between languages: bytes that say what they are, so that Python can read what C++
// wrote and the other way round. Wherever both ends are C++, send the T itself: that is shorter and faster.
//
//   manta::Ref<manta::PlainValue<std::vector<double>>> ref = manta::Put(manta::PlainValue(std::vector{1.0, 2.0}));
//
// What becomes what (C++ and Python): bool, integers and int, floating point and float, std::string and str (UTF-8),
// runs of std::byte and bytes, std::vector, std::set … and list, std::map and dict, std::tuple and std::pair and tuple,
// std::optional and None, vectors and Arrays of numbers and numpy.ndarray, Ref<PlainValue<T>> and ObjectRef,
// PyActorHandle and an actor's handle, std::variant and whichever fits first. Array<T> and Tensor<T> are read in place.
//
// Reading converts where nothing is lost (an int as a double, a list as a vector of numbers, an array of int32 as one
// of int64); else it throws InvalidError, which names both types.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "manta/array.h"
#include "manta/codec.h"
#include "manta/internal/plain_codec.h"

namespace manta {

template <typename T>
struct PlainValue {
  T value{};

  PlainValue() = default;
  PlainValue(T from) : value(std::move(from)) {}         // NOLINT(google-explicit-constructor)
  operator const T&() const& noexcept { return value; }  // NOLINT(google-explicit-constructor)
  operator T() && { return std::move(value); }           // NOLINT(google-explicit-constructor)
  const T& operator*() const& noexcept { return value; }
  T operator*() && { return std::move(value); }  // by value: for (x : *ref.Get()) must not outlive it
  const T* operator->() const noexcept { return &value; }
};
PlainValue(const char*) -> PlainValue<std::string>;

// An array of numbers with a shape, in C order (the last index runs fastest).
template <typename T>
struct Tensor {
  std::vector<std::uint64_t> shape;
  Array<T> values;
};

template <typename T>
struct Codec<PlainValue<T>> {
  template <typename Archive>
  static void Write(Archive& archive, const PlainValue<T>& value) {
    static_assert(internal::PlainType<T>(), "manta: this type cannot be sent to another language; see manta/plain.h");
    internal::WritePlain(archive, value.value);
  }
  static PlainValue<T> Read(Reader& reader) {
    static_assert(internal::PlainType<T>(), "manta: this type cannot come from another language; see manta/plain.h");
    return PlainValue<T>(internal::ReadPlainWhole<T>(reader));
  }
};

}  // namespace manta
