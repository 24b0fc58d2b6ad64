// Turns values into bytes and back. One stream of bytes per value, without names or types: both ends
// are the same program and know them.
//
// What is sent how, first match wins:
//   1. a member `template <typename Archive> void Serialize(Archive& archive) { archive(a, b); }`, used
//      both ways (Archive::kReading tells which; reading starts from a default-constructed value);
//   2. MANTA_FIELDS(a, b) in the class (manta/fields.h), also with a default constructor;
//   3. manta::Codec<T>: built in for numbers, enums, text, containers, optional, variant, tuple, smart pointers
//      (the value pointed to), chrono, complex, path, span, Array; specialise it for types of others;
//   4. plain aggregates of up to 32 fields, without any macro.
//
// Format: numbers as they are in (little-endian) memory, not aligned; counts as 64-bit numbers; bool and
// "is there one" as a byte 0 or 1. Runs of plain values (strings, vector<float>, vector<Point>) of 256 bytes
// and more start at a multiple of 64 from the start of the blob, so that they can be used in place.
//
// All functions may be called from any thread; a value must not change while it is encoded.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "manta/array.h"
#include "manta/errors.h"
#include "manta/fields.h"
#include "manta/internal/archive.h"
#include "manta/internal/builtin.h"
#include "manta/internal/containers.h"
#include "manta/internal/dispatch.h"

namespace manta {

// A T can be sent (Encodable) and received (Decodable). Where they are false, Encode and Decode say why.
template <typename T>
concept Encodable = internal::FindProblem<std::remove_cv_t<T>, false>() == internal::Problem::kNone;
template <typename T>
concept Decodable = internal::FindProblem<std::remove_cv_t<T>, true>() == internal::Problem::kNone;

// For templates that take user types: does not compile, with the reason and the remedy, unless T can be
// sent (and received).
template <typename T>
consteval bool RequireEncodable() {
  internal::Require<std::remove_cv_t<T>, false>();
  return true;
}
template <typename T>
consteval bool RequireDecodable() {
  internal::Require<std::remove_cv_t<T>, true>();
  return true;
}

// Exactly the bytes Encode writes. Throws InvalidError for values that cannot be sent: nested deeper
// than 1,000 containers, or a variant without value.
template <typename T>
[[nodiscard]] inline std::size_t EncodedSize(const T& value) {
  static_assert(RequireEncodable<T>());
  SizeCounter counter;
  counter(value);
  return counter.position();
}

// out.size() must be EncodedSize(value); InvalidError if it is not, without writing past its end.
template <typename T>
inline void Encode(const T& value, std::span<std::byte> out) {
  static_assert(RequireEncodable<T>());
  Writer writer(out);
  writer(value);
  writer.ExpectEnd();
}

// Throws CorruptError unless `bytes` are a T and nothing else. Needs no alignment of `bytes`, reads
// nothing outside them and allocates in proportion to them.
template <typename T>
[[nodiscard]] inline T Decode(std::span<const std::byte> bytes) {
  static_assert(RequireDecodable<T>());
  Reader reader(bytes);
  T value = reader.Read<std::remove_cv_t<T>>();
  reader.ExpectEnd();
  return value;
}

// The same, but Array<T> and std::span<const T> inside the value look at `bytes` in place, which `keep`
// keeps alive and unchanged; Arrays hold on to it, spans do not. Where `bytes` are not aligned for that,
// an Array is copied; a span, too, with `copies` (which then owns it), else InvalidError.
template <typename T>
[[nodiscard]] inline T Decode(std::span<const std::byte> bytes, const KeepAlive& keep,
                              std::vector<KeepAlive>* copies = nullptr) {
  static_assert(RequireDecodable<T>());
  Reader reader(bytes, &keep, copies);
  T value = reader.Read<std::remove_cv_t<T>>();
  reader.ExpectEnd();
  return value;
}

}  // namespace manta
