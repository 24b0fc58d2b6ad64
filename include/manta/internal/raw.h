// Which values may be copied as the bytes they are, and how runs of them are written.
//
// Raw: trivially copyable, made of numbers only. Not bool (2 is no bool) and no long double (its
// padding). A raw struct with padding is written field by field into a zeroed image, so that equal values
// have equal bytes and nothing of the sender's memory leaks.
#pragma once

#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "manta/internal/archive.h"
#include "manta/internal/reflect.h"

namespace manta {

// Says how a T is sent, for types that are not their own best judge: specialise it with
//   template <typename Archive> static void Write(Archive& archive, const T& value);   // archive(part, …)
//   static T Read(manta::Reader& reader);                                            // reader.Read<Part>()
//   using Parts = manta::internal::Types<Part…>;   // optional: lets Encodable<T> look inside
// before T is first sent. At least one byte must be written.
template <typename T>
struct Codec;

namespace internal {

template <typename T>
concept HasCodec = requires { sizeof(Codec<T>); };
template <typename T>
concept HasSerialize = std::is_class_v<T> && requires(T& value, SizeCounter& counter, Reader& reader) {
  value.Serialize(counter);
  value.Serialize(reader);
};
template <typename T>
concept HasFields = std::is_class_v<T> && requires(T& value) { value.manta_fields(); };
template <typename T>
concept Custom = HasSerialize<T> || HasFields<T> || HasCodec<T>;

// Only of enums whose underlying type is fixed can every bit pattern be a value.
template <typename T>
concept FixedEnum = std::is_enum_v<T> && requires { T{0}; } && !std::is_same_v<std::underlying_type_t<T>, bool>;

template <typename T>
struct RawOf {
  static constexpr bool kRaw = false;
  static constexpr bool kPacked = false;  // no padding
};
template <typename T>
  requires(std::is_arithmetic_v<T> || FixedEnum<T>)
struct RawOf<T> {
  static constexpr bool kRaw = !std::is_same_v<T, bool> && !std::is_same_v<T, long double>;
  static constexpr bool kPacked = true;
};
template <typename T, std::size_t N>
struct RawOf<T[N]> : RawOf<std::remove_cv_t<T>> {};
template <typename T, std::size_t N>
struct RawOf<std::array<T, N>> : RawOf<std::remove_cv_t<T>> {
  static constexpr bool kRaw = N != 0 && RawOf<std::remove_cv_t<T>>::kRaw;
};
template <typename T>
struct RawOf<std::complex<T>> : RawOf<T> {};
template <typename Rep, typename Period>
struct RawOf<std::chrono::duration<Rep, Period>> : RawOf<Rep> {};
template <typename Clock, typename Duration>
struct RawOf<std::chrono::time_point<Clock, Duration>> : RawOf<Duration> {};

template <typename T, typename... Fs>
struct RawFields {
  static constexpr bool kRaw = (RawOf<std::remove_cv_t<Fs>>::kRaw && ...);
  static constexpr bool kPacked = (RawOf<std::remove_cv_t<Fs>>::kPacked && ...) && (sizeof(Fs) + ... + 0) == sizeof(T);
};
template <typename T, typename... Fs>
consteval RawFields<T, Fs...> RawFieldsOf(Types<Fs...>);
template <typename T>
  requires(std::is_class_v<T> && std::is_trivially_copyable_v<T> && !Custom<T> && Reflectable<T> && !std::is_empty_v<T>)
struct RawOf<T> : decltype(RawFieldsOf<T>(FieldTypes<T>())) {};

template <typename T>
concept Raw = RawOf<T>::kRaw && std::is_trivially_copyable_v<T>;

// Copies every number inside `value` to its place in `image`.
template <typename T>
void CopyUnpadded(std::byte* image, T& value) {
  if constexpr (RawOf<std::remove_cv_t<T>>::kPacked) {
    std::memcpy(image, static_cast<const void*>(&value), sizeof(T));
  } else if constexpr (requires { value[0]; }) {
    for (auto& element : value) {
      CopyUnpadded(image, element);
      image += sizeof element;
    }
  } else {
    const auto* base = reinterpret_cast<const std::byte*>(&value);
    VisitFields(value, [&](auto&... fields) {
      (CopyUnpadded(image + (reinterpret_cast<const std::byte*>(&fields) - base), fields), ...);
    });
  }
}

template <typename Archive, Raw T>
void WriteRun(Archive& archive, const T* values, std::size_t count) {
  const std::size_t bytes = count * sizeof(T);
  if (bytes >= kAlignFrom) archive.Align();
  if constexpr (RawOf<T>::kPacked || Archive::kCounting) {
    archive.Bytes(values, bytes);
  } else {
    std::byte* image = archive.Claim(bytes);
    for (std::size_t i = 0; i < count; ++i) {
      std::memset(image, 0, sizeof(T));
      CopyUnpadded(image, const_cast<T&>(values[i]));  // non-const: lets no bit field through as a temporary
      image += sizeof(T);
    }
  }
}

// The bytes of `count` values that Reader::Count(sizeof(T)) or the type has vouched for, in place.
template <Raw T>
[[nodiscard]] const std::byte* TakeRun(Reader& reader, std::size_t count) {
  const std::size_t bytes = count * sizeof(T);
  if (bytes >= kAlignFrom) reader.Align();
  return reader.Take(bytes);
}

template <typename T>
[[nodiscard]] bool IsAligned(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % alignof(T) == 0;
}

}  // namespace internal
}  // namespace manta
