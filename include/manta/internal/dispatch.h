// Chooses how a type is sent (the order is in manta/codec.h) and, for types that cannot be, finds out
// why, so that the compiler's message can say what to do.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include "manta/internal/archive.h"
#include "manta/internal/raw.h"
#include "manta/internal/reflect.h"

namespace manta::internal {

enum class Problem {
  kNone,
  kPointer,
  kReference,
  kFunction,
  kView,         // can be sent, but not received
  kPolymorphic,  // behind a smart pointer: would be cut down to its base
  kUnion,
  kNoDefault,  // cannot be made before its fields are read
  kClass,      // no way to look inside
};

template <typename T, bool kReading, typename... Outer>
consteval Problem FindProblem();

template <bool kReading, typename... Outer, typename... Ts>
consteval Problem FindProblemIn(Types<Ts...>) {
  Problem found = Problem::kNone;
  (void)((found = FindProblem<std::remove_cv_t<Ts>, kReading, Outer...>(), found != Problem::kNone) || ...);
  return found;
}
template <typename... Ts>
consteval Types<std::remove_reference_t<Ts>...> TypesOfTie(const std::tuple<Ts...>*);
template <typename T>
using TiedTypes =
    decltype(TypesOfTie(static_cast<std::remove_reference_t<decltype(std::declval<T&>().manta_fields())>*>(nullptr)));
template <typename... Ts>
consteval bool HasArray(Types<Ts...>) {
  return (std::is_array_v<Ts> || ...);
}

// Outer: the classes we are inside of, so that a recursive type ends the search.
template <typename T, bool kReading, typename... Outer>
consteval Problem FindProblem() {
  if constexpr ((std::is_same_v<T, Outer> || ...)) {
    return Problem::kNone;
  } else if constexpr (std::is_reference_v<T>) {
    return Problem::kReference;
  } else if constexpr (std::is_function_v<T> || requires(const T& value) { value.target_type(); }) {
    return Problem::kFunction;  // the latter is std::function
  } else if constexpr (std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T>) {
    return std::is_function_v<std::remove_pointer_t<T>> ? Problem::kFunction : Problem::kPointer;
  } else if constexpr (std::is_array_v<T>) {
    return FindProblem<std::remove_cv_t<std::remove_extent_t<T>>, kReading, Outer...>();
  } else if constexpr (HasSerialize<T>) {
    return kReading && !std::is_default_constructible_v<T> ? Problem::kNoDefault : Problem::kNone;
  } else if constexpr (HasFields<T>) {
    if (kReading && !std::is_default_constructible_v<T>) return Problem::kNoDefault;
    return FindProblemIn<kReading, T, Outer...>(TiedTypes<T>());
  } else if constexpr (HasCodec<T>) {
    if constexpr (requires { Codec<T>::kProblem; }) {
      if (Codec<T>::kProblem != Problem::kNone) return Codec<T>::kProblem;
    }
    if constexpr (kReading && requires { Codec<T>::kReadProblem; }) {
      if (Codec<T>::kReadProblem != Problem::kNone) return Codec<T>::kReadProblem;
    }
    if constexpr (requires { typename Codec<T>::Parts; }) {
      return FindProblemIn<kReading, T, Outer...>(typename Codec<T>::Parts());
    } else {
      return Problem::kNone;
    }
  } else if constexpr (std::is_union_v<T>) {
    return Problem::kUnion;
  } else if constexpr (Reflectable<T>) {
    if (kReading && HasArray(FieldTypes<T>()) && !std::is_default_constructible_v<T>) return Problem::kNoDefault;
    return FindProblemIn<kReading, T, Outer...>(FieldTypes<T>());
  } else {
    return Problem::kClass;
  }
}

// Stops the compiler with the message for the first problem of T.
template <typename T, bool kReading>
consteval void Require() {
  constexpr Problem kProblem = FindProblem<T, kReading>();
  static_assert(kProblem != Problem::kPointer,
                "Manta cannot send a raw pointer; pass the value, a std::string for text, a std::unique_ptr or a Ref");
  static_assert(kProblem != Problem::kReference, "Manta cannot send a class with a reference in it; hold the value");
  static_assert(kProblem != Problem::kFunction,
                "Manta cannot send a function or std::function; pass the values it needs and call it over there");
  static_assert(kProblem != Problem::kView,
                "Manta can send but not receive this view; take a std::string, std::vector<T>, manta::Array<T> or, for "
                "plain numbers, a std::span<const T>");
  static_assert(kProblem != Problem::kPolymorphic,
                "Manta cannot tell which derived class a pointer to a polymorphic class points to; use a std::variant");
  static_assert(kProblem != Problem::kUnion, "Manta cannot tell which member of a union is set; use a std::variant");
  static_assert(kProblem != Problem::kNoDefault,
                "Manta must default-construct this type (or one inside it) before it reads its fields; give it a "
                "default constructor");
  static_assert(kProblem != Problem::kClass,
                "Manta cannot look into this type (or one inside it: it has private members, constructors, base "
                "classes or more than 32 fields); write MANTA_FIELDS(a, b) or a Serialize(archive) member into it");
}

template <typename Archive, typename T>
void WriteFields(Archive& archive, const T& value) {
  // Non-const, so that a bit field does not compile instead of being sent as a temporary.
  VisitFields(const_cast<T&>(value), [&](auto&... fields) {
    if constexpr (sizeof...(fields) == 0) {
      archive(std::byte{0});
    } else {
      archive(fields...);
    }
  });
}

template <typename Archive, typename T>
inline void WriteValue(Archive& archive, const T& value) {
  if constexpr (std::is_array_v<T>) {
    using Element = std::remove_extent_t<T>;
    if constexpr (Raw<Element>) {
      WriteRun(archive, value, std::extent_v<T>);
    } else {
      for (const Element& element : value) WriteValue(archive, element);
    }
  } else if constexpr (HasSerialize<T>) {
    const std::size_t before = archive.position();
    const_cast<T&>(value).Serialize(archive);  // one member for both ways; writing only reads its fields
    if (archive.position() == before) WriteValue(archive, std::byte{0});
  } else if constexpr (HasFields<T>) {
    std::apply(
        [&](const auto&... fields) {
          if constexpr (sizeof...(fields) == 0) {
            WriteValue(archive, std::byte{0});
          } else {
            (WriteValue(archive, fields), ...);
          }
        },
        value.manta_fields());
  } else if constexpr (HasCodec<T>) {
    Codec<T>::Write(archive, value);
  } else if constexpr (Reflectable<T>) {
    WriteFields(archive, value);
  } else {
    Require<T, false>();
  }
}

template <typename T, typename... Fs>
T ReadFields(Reader& reader, Types<Fs...> fields) {
  if constexpr (sizeof...(Fs) == 0) {
    (void)reader.Take(1);
    return T{};
  } else if constexpr (HasArray(fields)) {
    T value{};
    VisitFields(value, [&](auto&... parts) { (ReadInto(reader, parts), ...); });
    return value;
  } else {
    return T{ReadValue<std::remove_cv_t<Fs>>(reader)...};  // braces: left to right
  }
}

template <typename T>
inline T ReadValue(Reader& reader) {
  if constexpr (HasSerialize<T>) {
    T value{};
    const std::size_t before = reader.position();
    value.Serialize(reader);
    if (reader.position() == before) (void)reader.Take(1);
    return value;
  } else if constexpr (HasFields<T>) {
    T value{};
    std::apply(
        [&](auto&... fields) {
          if constexpr (sizeof...(fields) == 0) {
            (void)reader.Take(1);
          } else {
            (ReadInto(reader, fields), ...);
          }
        },
        value.manta_fields());
    return value;
  } else if constexpr (HasCodec<T>) {
    return Codec<T>::Read(reader);
  } else if constexpr (Reflectable<T>) {
    return ReadFields<T>(reader, FieldTypes<T>());
  } else {
    Require<T, true>();
  }
}

template <typename T>
inline void ReadInto(Reader& reader, T& value) {
  if constexpr (std::is_array_v<T>) {
    using Element = std::remove_extent_t<T>;
    if constexpr (Raw<Element>) {
      std::memcpy(static_cast<void*>(value), TakeRun<Element>(reader, std::extent_v<T>), sizeof(T));
    } else {
      for (Element& element : value) ReadInto(reader, element);
    }
  } else {
    value = ReadValue<T>(reader);
  }
}

}  // namespace manta::internal
