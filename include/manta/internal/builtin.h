// How the standard library's single values are sent: numbers, text, and what holds one or a few others.
#pragma once

#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "manta/internal/dispatch.h"

namespace manta {

template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
struct Codec<T> {
  template <typename Archive>
  static void Write(Archive& archive, T value) {
    if constexpr (std::is_same_v<T, long double> && std::numeric_limits<long double>::digits == 64) {
      std::byte image[sizeof(T)]{};
      std::memcpy(image, &value, 10);  // the rest is padding
      archive.Bytes(image, sizeof image);
    } else {
      archive.Bytes(&value, sizeof value);
    }
  }
  static T Read(Reader& reader) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      reader.Bytes(&byte, 1);
      if (byte > 1) reader.Fail("a bool is neither 0 nor 1");
      return byte != 0;
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      if constexpr (std::is_same_v<decltype(number), bool>) {
        number = Codec<bool>::Read(reader);
      } else {
        reader.Bytes(&number, sizeof number);
      }
      return static_cast<T>(number);
    } else {
      T value{};
      reader.Bytes(&value, sizeof value);
      return value;
    }
  }
};

template <typename Char, typename Traits, typename Alloc>
struct Codec<std::basic_string<Char, Traits, Alloc>> {
  using String = std::basic_string<Char, Traits, Alloc>;
  template <typename Archive>
  static void Write(Archive& archive, const String& value) {
    archive(std::uint64_t{value.size()});
    internal::WriteRun(archive, value.data(), value.size());
  }
  static String Read(Reader& reader) {
    const std::size_t count = reader.Count(sizeof(Char));
    const std::byte* from = internal::TakeRun<Char>(reader, count);
    if constexpr (sizeof(Char) == 1) {
      return String(reinterpret_cast<const Char*>(from), count);
    } else {
      String value(count, Char());
      if (count != 0) std::memcpy(value.data(), from, count * sizeof(Char));
      return value;
    }
  }
};

// Same bytes as the string. Cannot be received: nobody would own the text.
template <typename Char, typename Traits>
struct Codec<std::basic_string_view<Char, Traits>> {
  static constexpr internal::Problem kReadProblem = internal::Problem::kView;
  template <typename Archive>
  static void Write(Archive& archive, std::basic_string_view<Char, Traits> value) {
    archive(std::uint64_t{value.size()});
    internal::WriteRun(archive, value.data(), value.size());
  }
};

template <>
struct Codec<std::monostate> {
  template <typename Archive>
  static void Write(Archive& archive, std::monostate) {
    archive(std::byte{0});
  }
  static std::monostate Read(Reader& reader) {
    (void)reader.Take(1);
    return {};
  }
};

template <typename T>
struct Codec<std::complex<T>> {
  using Parts = internal::Types<T>;
  template <typename Archive>
  static void Write(Archive& archive, const std::complex<T>& value) {
    archive(value.real(), value.imag());
  }
  static std::complex<T> Read(Reader& reader) {
    const T real = reader.Read<T>();
    return {real, reader.Read<T>()};
  }
};

template <typename Rep, typename Period>
struct Codec<std::chrono::duration<Rep, Period>> {
  using Parts = internal::Types<Rep>;
  template <typename Archive>
  static void Write(Archive& archive, const std::chrono::duration<Rep, Period>& value) {
    archive(value.count());
  }
  static std::chrono::duration<Rep, Period> Read(Reader& reader) {
    return std::chrono::duration<Rep, Period>(reader.Read<Rep>());
  }
};

template <typename Clock, typename Duration>
struct Codec<std::chrono::time_point<Clock, Duration>> {
  using Parts = internal::Types<Duration>;
  template <typename Archive>
  static void Write(Archive& archive, const std::chrono::time_point<Clock, Duration>& value) {
    archive(value.time_since_epoch());
  }
  static std::chrono::time_point<Clock, Duration> Read(Reader& reader) {
    return std::chrono::time_point<Clock, Duration>(reader.Read<Duration>());
  }
};

// std::filesystem::path, recognised by its shape: its header alone takes as long to compile as this one.
template <typename T>
  requires(std::is_class_v<T> &&
           requires(const T& path) {
             { path.native() } -> std::same_as<const typename T::string_type&>;
             path.lexically_normal();
           })
struct Codec<T> {
  template <typename Archive>
  static void Write(Archive& archive, const T& value) {
    archive(value.native());
  }
  static T Read(Reader& reader) { return T(reader.Read<typename T::string_type>()); }
};

template <typename First, typename Second>
struct Codec<std::pair<First, Second>> {
  using Parts = internal::Types<First, Second>;
  template <typename Archive>
  static void Write(Archive& archive, const std::pair<First, Second>& value) {
    archive(value.first, value.second);
  }
  static std::pair<First, Second> Read(Reader& reader) {
    // Braces: left to right. The casts keep const keys of maps possible.
    return std::pair<First, Second>{reader.Read<std::remove_cv_t<First>>(), reader.Read<std::remove_cv_t<Second>>()};
  }
};

template <typename... Ts>
struct Codec<std::tuple<Ts...>> {
  using Parts = internal::Types<Ts...>;
  template <typename Archive>
  static void Write(Archive& archive, const std::tuple<Ts...>& value) {
    if constexpr (sizeof...(Ts) == 0) {
      archive(std::byte{0});
    } else {
      std::apply([&](const Ts&... parts) { archive(parts...); }, value);
    }
  }
  static std::tuple<Ts...> Read(Reader& reader) {
    if constexpr (sizeof...(Ts) == 0) {
      (void)reader.Take(1);
      return {};
    } else {
      return std::tuple<Ts...>{reader.Read<std::remove_cv_t<Ts>>()...};
    }
  }
};

template <typename T>
struct Codec<std::optional<T>> {
  using Parts = internal::Types<T>;
  template <typename Archive>
  static void Write(Archive& archive, const std::optional<T>& value) {
    archive(value.has_value());
    if (value.has_value()) archive(*value);
  }
  static std::optional<T> Read(Reader& reader) {
    if (!reader.Read<bool>()) return std::nullopt;
    return std::optional<T>(std::in_place, reader.Read<std::remove_cv_t<T>>());
  }
};

template <typename... Ts>
struct Codec<std::variant<Ts...>> {
  using Parts = internal::Types<Ts...>;
  using Index = std::conditional_t<(sizeof...(Ts) < 256), std::uint8_t, std::uint32_t>;

  template <typename Archive>
  static void Write(Archive& archive, const std::variant<Ts...>& value) {
    if (value.valueless_by_exception())
      throw InvalidError("cannot send a std::variant that lost its value to an exception");
    archive(static_cast<Index>(value.index()));
    std::visit([&](const auto& alternative) { archive(alternative); }, value);
  }
  static std::variant<Ts...> Read(Reader& reader) { return ReadFrom<0>(reader, reader.Read<Index>()); }

 private:
  template <std::size_t I>
  static std::variant<Ts...> ReadFrom(Reader& reader, std::size_t index) {
    if constexpr (I == sizeof...(Ts)) {
      reader.Fail("a variant has an alternative that its type has not");
    } else {
      if (index != I) return ReadFrom<I + 1>(reader, index);
      using T = std::variant_alternative_t<I, std::variant<Ts...>>;
      return std::variant<Ts...>(std::in_place_index<I>, reader.Read<std::remove_cv_t<T>>());
    }
  }
};

namespace internal {

// Null, or the value it points to: two pointers to one value become two values.
template <typename Pointer, typename T>
struct PointerCodec {
  using Parts = Types<T>;
  static constexpr Problem kProblem =
      std::is_polymorphic_v<T> && !std::is_final_v<T> ? Problem::kPolymorphic : Problem::kNone;
  template <typename Archive>
  static void Write(Archive& archive, const Pointer& value) {
    archive(value != nullptr);
    if (value == nullptr) return;
    archive.Enter();
    archive(*value);
    archive.Leave();
  }
  static Pointer Read(Reader& reader) {
    if (!reader.Read<bool>()) return nullptr;
    reader.Enter();
    Pointer value(new T(reader.Read<std::remove_cv_t<T>>()));
    reader.Leave();
    return value;
  }
};

}  // namespace internal

template <typename T>
  requires(!std::is_array_v<T>)
struct Codec<std::unique_ptr<T>> : internal::PointerCodec<std::unique_ptr<T>, T> {};
template <typename T>
  requires(!std::is_array_v<T>)
struct Codec<std::shared_ptr<T>> : internal::PointerCodec<std::shared_ptr<T>, T> {};

}  // namespace manta
