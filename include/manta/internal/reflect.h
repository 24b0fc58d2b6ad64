// Looks into plain aggregates: how many fields, of which types, and a way to visit them. No macro, no
// registration: fields are counted by trying initialisers and reached by structured bindings.
//
// An aggregate with base classes or with more than kMaxFields fields is not looked into. One with bit
// fields does not compile ("cannot bind bit-field"): nobody can refer to half a byte.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace manta::internal {

inline constexpr std::size_t kMaxFields = 32;

template <typename... Ts>
struct Types {
  static constexpr std::size_t kCount = sizeof...(Ts);
};

// Converts to whatever a field of Whole wants, except to Whole itself (that would be a copy).
template <typename Whole>
struct Anything {
  template <typename T>
    requires(!std::is_same_v<T, Whole>)
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <typename Whole>
struct AnyBase {
  template <typename T>
    requires(std::is_base_of_v<T, Whole> && !std::is_same_v<T, Whole>)
  operator T() const;  // NOLINT(google-explicit-constructor)
};

// The language has no way to make N names or N times `{}` from a number: hence these lists.
// clang-format off
#define MANTA_EACH_COUNT(X) \
  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) \
  X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32)
#define MANTA_NAMES_1 f1
#define MANTA_NAMES_2 MANTA_NAMES_1, f2
#define MANTA_NAMES_3 MANTA_NAMES_2, f3
#define MANTA_NAMES_4 MANTA_NAMES_3, f4
#define MANTA_NAMES_5 MANTA_NAMES_4, f5
#define MANTA_NAMES_6 MANTA_NAMES_5, f6
#define MANTA_NAMES_7 MANTA_NAMES_6, f7
#define MANTA_NAMES_8 MANTA_NAMES_7, f8
#define MANTA_NAMES_9 MANTA_NAMES_8, f9
#define MANTA_NAMES_10 MANTA_NAMES_9, f10
#define MANTA_NAMES_11 MANTA_NAMES_10, f11
#define MANTA_NAMES_12 MANTA_NAMES_11, f12
#define MANTA_NAMES_13 MANTA_NAMES_12, f13
#define MANTA_NAMES_14 MANTA_NAMES_13, f14
#define MANTA_NAMES_15 MANTA_NAMES_14, f15
#define MANTA_NAMES_16 MANTA_NAMES_15, f16
#define MANTA_NAMES_17 MANTA_NAMES_16, f17
#define MANTA_NAMES_18 MANTA_NAMES_17, f18
#define MANTA_NAMES_19 MANTA_NAMES_18, f19
#define MANTA_NAMES_20 MANTA_NAMES_19, f20
#define MANTA_NAMES_21 MANTA_NAMES_20, f21
#define MANTA_NAMES_22 MANTA_NAMES_21, f22
#define MANTA_NAMES_23 MANTA_NAMES_22, f23
#define MANTA_NAMES_24 MANTA_NAMES_23, f24
#define MANTA_NAMES_25 MANTA_NAMES_24, f25
#define MANTA_NAMES_26 MANTA_NAMES_25, f26
#define MANTA_NAMES_27 MANTA_NAMES_26, f27
#define MANTA_NAMES_28 MANTA_NAMES_27, f28
#define MANTA_NAMES_29 MANTA_NAMES_28, f29
#define MANTA_NAMES_30 MANTA_NAMES_29, f30
#define MANTA_NAMES_31 MANTA_NAMES_30, f31
#define MANTA_NAMES_32 MANTA_NAMES_31, f32
#define MANTA_TYPES_1 decltype(f1)
#define MANTA_TYPES_2 MANTA_TYPES_1, decltype(f2)
#define MANTA_TYPES_3 MANTA_TYPES_2, decltype(f3)
#define MANTA_TYPES_4 MANTA_TYPES_3, decltype(f4)
#define MANTA_TYPES_5 MANTA_TYPES_4, decltype(f5)
#define MANTA_TYPES_6 MANTA_TYPES_5, decltype(f6)
#define MANTA_TYPES_7 MANTA_TYPES_6, decltype(f7)
#define MANTA_TYPES_8 MANTA_TYPES_7, decltype(f8)
#define MANTA_TYPES_9 MANTA_TYPES_8, decltype(f9)
#define MANTA_TYPES_10 MANTA_TYPES_9, decltype(f10)
#define MANTA_TYPES_11 MANTA_TYPES_10, decltype(f11)
#define MANTA_TYPES_12 MANTA_TYPES_11, decltype(f12)
#define MANTA_TYPES_13 MANTA_TYPES_12, decltype(f13)
#define MANTA_TYPES_14 MANTA_TYPES_13, decltype(f14)
#define MANTA_TYPES_15 MANTA_TYPES_14, decltype(f15)
#define MANTA_TYPES_16 MANTA_TYPES_15, decltype(f16)
#define MANTA_TYPES_17 MANTA_TYPES_16, decltype(f17)
#define MANTA_TYPES_18 MANTA_TYPES_17, decltype(f18)
#define MANTA_TYPES_19 MANTA_TYPES_18, decltype(f19)
#define MANTA_TYPES_20 MANTA_TYPES_19, decltype(f20)
#define MANTA_TYPES_21 MANTA_TYPES_20, decltype(f21)
#define MANTA_TYPES_22 MANTA_TYPES_21, decltype(f22)
#define MANTA_TYPES_23 MANTA_TYPES_22, decltype(f23)
#define MANTA_TYPES_24 MANTA_TYPES_23, decltype(f24)
#define MANTA_TYPES_25 MANTA_TYPES_24, decltype(f25)
#define MANTA_TYPES_26 MANTA_TYPES_25, decltype(f26)
#define MANTA_TYPES_27 MANTA_TYPES_26, decltype(f27)
#define MANTA_TYPES_28 MANTA_TYPES_27, decltype(f28)
#define MANTA_TYPES_29 MANTA_TYPES_28, decltype(f29)
#define MANTA_TYPES_30 MANTA_TYPES_29, decltype(f30)
#define MANTA_TYPES_31 MANTA_TYPES_30, decltype(f31)
#define MANTA_TYPES_32 MANTA_TYPES_31, decltype(f32)
#define MANTA_BRACES_1 {}
#define MANTA_BRACES_2 MANTA_BRACES_1, {}
#define MANTA_BRACES_3 MANTA_BRACES_2, {}
#define MANTA_BRACES_4 MANTA_BRACES_3, {}
#define MANTA_BRACES_5 MANTA_BRACES_4, {}
#define MANTA_BRACES_6 MANTA_BRACES_5, {}
#define MANTA_BRACES_7 MANTA_BRACES_6, {}
#define MANTA_BRACES_8 MANTA_BRACES_7, {}
#define MANTA_BRACES_9 MANTA_BRACES_8, {}
#define MANTA_BRACES_10 MANTA_BRACES_9, {}
#define MANTA_BRACES_11 MANTA_BRACES_10, {}
#define MANTA_BRACES_12 MANTA_BRACES_11, {}
#define MANTA_BRACES_13 MANTA_BRACES_12, {}
#define MANTA_BRACES_14 MANTA_BRACES_13, {}
#define MANTA_BRACES_15 MANTA_BRACES_14, {}
#define MANTA_BRACES_16 MANTA_BRACES_15, {}
#define MANTA_BRACES_17 MANTA_BRACES_16, {}
#define MANTA_BRACES_18 MANTA_BRACES_17, {}
#define MANTA_BRACES_19 MANTA_BRACES_18, {}
#define MANTA_BRACES_20 MANTA_BRACES_19, {}
#define MANTA_BRACES_21 MANTA_BRACES_20, {}
#define MANTA_BRACES_22 MANTA_BRACES_21, {}
#define MANTA_BRACES_23 MANTA_BRACES_22, {}
#define MANTA_BRACES_24 MANTA_BRACES_23, {}
#define MANTA_BRACES_25 MANTA_BRACES_24, {}
#define MANTA_BRACES_26 MANTA_BRACES_25, {}
#define MANTA_BRACES_27 MANTA_BRACES_26, {}
#define MANTA_BRACES_28 MANTA_BRACES_27, {}
#define MANTA_BRACES_29 MANTA_BRACES_28, {}
#define MANTA_BRACES_30 MANTA_BRACES_29, {}
#define MANTA_BRACES_31 MANTA_BRACES_30, {}
#define MANTA_BRACES_32 MANTA_BRACES_31, {}
#define MANTA_BRACES_33 MANTA_BRACES_32, {}
// clang-format on

// `{}` initialises exactly one field, an array too; an expression would start filling the array.
template <typename T>
consteval std::size_t CountByBraces() {
#define MANTA_TRY(N)                                \
  if constexpr (!requires { T{MANTA_BRACES_##N}; }) \
    return N - 1;                                   \
  else  // NOLINT
  MANTA_EACH_COUNT(MANTA_TRY)
  MANTA_TRY(33)
  return kMaxFields + 1;
#undef MANTA_TRY
}

template <typename T, std::size_t... I>
consteval bool TakesValues(std::index_sequence<I...>) {
  return requires { T{((void)I, Anything<T>{})...}; };
}
// For aggregates that have a field without default: those cannot be made from fewer values than fields,
// so the count is the largest that works.
template <typename T, std::size_t N = kMaxFields + 1>
consteval std::size_t CountByValues() {
  if constexpr (N == 0) {
    return kMaxFields + 1;  // not even one by one: it holds a reference or something that cannot move
  } else if constexpr (TakesValues<T>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return CountByValues<T, N - 1>();
  }
}

// kMaxFields + 1 when there are too many or it cannot be told.
template <typename T>
consteval std::size_t CountFields() {
  if constexpr (requires { T{}; }) {
    return CountByBraces<T>();
  } else {
    return CountByValues<T>();
  }
}

template <typename T>
concept HasBase = requires { T{AnyBase<T>{}}; };

// A class that can be taken apart and put together without its help.
template <typename T>
concept Reflectable = std::is_class_v<T> && std::is_aggregate_v<T> && !HasBase<T> && CountFields<T>() <= kMaxFields;

// Calls visit(field...) with references to all fields.
template <typename T, typename Visit>
constexpr decltype(auto) VisitFields(T& value, Visit&& visit) {
  constexpr std::size_t kCount = CountFields<std::remove_const_t<T>>();
#define MANTA_VISIT(N)               \
  if constexpr (kCount == N) {       \
    auto& [MANTA_NAMES_##N] = value; \
    return visit(MANTA_NAMES_##N);   \
  } else  // NOLINT
  MANTA_EACH_COUNT(MANTA_VISIT)
  return visit();
#undef MANTA_VISIT
}

// Types<Field...> as declared.
template <typename T>
constexpr auto FieldTypesOf(T& value) {
  constexpr std::size_t kCount = CountFields<T>();
#define MANTA_LIST(N)                                 \
  if constexpr (kCount == N) {                        \
    [[maybe_unused]] auto& [MANTA_NAMES_##N] = value; \
    return Types<MANTA_TYPES_##N>();                  \
  } else  // NOLINT
  MANTA_EACH_COUNT(MANTA_LIST)
  return Types<>();
#undef MANTA_LIST
}
template <Reflectable T>
using FieldTypes = decltype(FieldTypesOf(std::declval<T&>()));

}  // namespace manta::internal

#undef MANTA_EACH_COUNT
