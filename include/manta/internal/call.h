// How a C++ signature becomes a trampoline and how arguments are matched against it.
#pragma once

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "manta/internal/core.h"
#include "manta/ref.h"

namespace manta::internal {

template <typename...>
inline constexpr bool kNever = false;

template <typename F>
struct Signature {  // of no function: CheckFunction says so, and the rest is there to say nothing more
  static constexpr bool known = false;
  using Return = void;
  using Params = std::tuple<>;
};
template <typename R, typename... A>
struct Signature<R (*)(A...)> {
  static constexpr bool known = true;
  using Return = R;
  using Params = std::tuple<A...>;
};
template <typename R, typename... A>
struct Signature<R (*)(A...) noexcept> : Signature<R (*)(A...)> {};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {
  using Class = C;
  static constexpr bool read_only = false;
};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...) const> : Signature<R (C::*)(A...)> {
  static constexpr bool read_only = true;
};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...) noexcept> : Signature<R (C::*)(A...)> {};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...) const noexcept> : Signature<R (C::*)(A...) const> {};

template <typename F>
constexpr auto SignatureOf() {
  if constexpr (Signature<F>::known) {
    return Signature<F>{};
  } else if constexpr (requires { &F::operator(); }) {
    return Signature<decltype(&F::operator())>{};
  } else {
    return Signature<void>{};
  }
}

template <typename T>
struct IsRef : std::false_type {};
template <typename T>
struct IsRef<Ref<T>> : std::true_type {
  using Value = T;
};
template <typename T>
struct IsRefVector : std::false_type {};
template <typename T>
struct IsRefVector<std::vector<Ref<T>>> : std::true_type {
  using Value = T;
};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {
  using Value = T;
};

// Can bytes written as From be read as To? The same type, or contiguous elements of one type.
template <typename From, typename To>
constexpr bool ReadableAs() {
  if constexpr (std::is_same_v<From, To>)
    return true;
  else if constexpr (ElementOf<From>::known && ElementOf<To>::known)
    return std::is_same_v<typename ElementOf<From>::type, typename ElementOf<To>::type>;
  else
    return false;
}

// Does an argument of type A fit a parameter of (decayed) type D?
template <typename D, typename A>
constexpr bool Fits() {
  using B = std::remove_cvref_t<A>;
  if constexpr (IsRef<B>::value && !IsRef<D>::value)
    return ReadableAs<typename IsRef<B>::Value, D>();
  else if constexpr (IsRefVector<B>::value && IsVector<D>::value && !IsRefVector<D>::value)
    return ReadableAs<typename IsRefVector<B>::Value, typename IsVector<D>::Value>();
  else
    return std::is_convertible_v<A, D>;
}

template <typename T>
void AddValue(Arguments& arguments, const T& value) {
  static_assert(RequireEncodable<T>(), "manta: this argument's type cannot be sent");
  const std::size_t size = EncodedSize(value);
  if (size <= kInlineArgument) {
    Encode(value, std::span<std::byte>(arguments.AddValue(size), size));
  } else {  // stored once, read in place by the task
    const auto stored = Handle<Entry>::Adopt(PutValue(value));
    arguments.AddRef(stored.get());
  }
}

template <typename D, typename A>
void AddArgument(Arguments& arguments, A&& argument) {
  using B = std::remove_cvref_t<A>;
  if constexpr (IsRef<B>::value && !IsRef<D>::value) {
    arguments.AddRef(argument.entry());
  } else if constexpr (IsRefVector<B>::value && IsVector<D>::value && !IsRefVector<D>::value) {
    arguments.BeginList(argument.size());
    for (const auto& ref : argument) arguments.AddRef(ref.entry());
  } else if constexpr (std::is_same_v<B, D>) {
    AddValue<D>(arguments, argument);
  } else {
    const D value = std::forward<A>(argument);
    AddValue<D>(arguments, value);
  }
}

template <typename P>
constexpr void CheckParameter() {
  static_assert(!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>,
                "manta: a remote function cannot change its caller's variable: take the parameter by value or by "
                "const reference, and return the result");
}

// Encodes args… as parameters Params (a tuple of the function's declared types).
template <typename Params, typename... A>
void AddArguments(Arguments& arguments, A&&... args) {
  static_assert(std::tuple_size_v<Params> == sizeof...(A),
                "manta: Remote(…) needs exactly the arguments that the remote function takes");
  if constexpr (std::tuple_size_v<Params> == sizeof...(A)) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (CheckParameter<std::tuple_element_t<I, Params>>(), ...);
      static_assert((Fits<std::remove_cvref_t<std::tuple_element_t<I, Params>>, A>() && ...),
                    "manta: an argument of Remote(…) does not match the function's parameter: pass a value that "
                    "converts to it, or a Ref of exactly that type");
      if constexpr ((Fits<std::remove_cvref_t<std::tuple_element_t<I, Params>>, A>() && ...)) {
        (AddArgument<std::remove_cvref_t<std::tuple_element_t<I, Params>>>(arguments, std::forward<A>(args)), ...);
      }
    }(std::make_index_sequence<sizeof...(A)>());
  }
}

// Reads one argument of decayed type D, keeping alive what it views.
template <typename D>
D ReadArgument(Invocation& call, std::vector<KeepAlive>* keeps) {
  if constexpr (IsVector<D>::value) {
    if (const std::int64_t count = call.NextList(); count >= 0) {
      D items;
      items.reserve(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        KeepAlive item;
        const View view = call.Next(&item);
        items.push_back(Decode<typename IsVector<D>::Value>(view.bytes(), item, keeps));
        if (item != nullptr) keeps->push_back(std::move(item));
      }
      return items;
    }
  }
  KeepAlive keep;
  const View view = call.Next(&keep);
  if (keep != nullptr) keeps->push_back(keep);  // a span looks at the bytes until the call is over
  return Decode<D>(view.bytes(), keep, keeps);
}

// Reads all arguments, then calls run(args…).
template <typename Params, typename Run>
decltype(auto) WithArguments(Invocation& call, Run&& run) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) -> decltype(auto) {
    std::vector<KeepAlive> keeps;
    // Braces: arguments are read in order.
    std::tuple<std::remove_cvref_t<std::tuple_element_t<I, Params>>...> values{
        ReadArgument<std::remove_cvref_t<std::tuple_element_t<I, Params>>>(call, &keeps)...};
    return run(static_cast<std::tuple_element_t<I, Params>&&>(std::get<I>(values))...);
  }(std::make_index_sequence<std::tuple_size_v<Params>>());
}

template <typename T>
void WriteReturn(Invocation& call, std::uint32_t index, const T& value) {
  static_assert(RequireEncodable<T>(), "manta: the function's return type cannot be sent");
  const std::size_t size = EncodedSize(value);
  Encode(value, std::span<std::byte>(call.Return(index, size), size));
}

template <typename T>
struct IsTuple : std::false_type {};
template <typename... T>
struct IsTuple<std::tuple<T...>> : std::true_type {
  using Refs = std::tuple<Ref<T>...>;
};

// What Remote() returns for a function that returns R, and how many objects that is.
template <typename R>
struct Results {
  using Type = Ref<R>;
  static constexpr std::uint32_t count = 1;
};
template <typename... T>
struct Results<std::tuple<T...>> {
  using Type = std::tuple<Ref<T>...>;
  static constexpr std::uint32_t count = sizeof...(T);
};

template <typename R>
typename Results<R>::Type TakeResults(Entry** out) {
  if constexpr (IsTuple<R>::value) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return typename Results<R>::Type{
          std::tuple_element_t<I, typename Results<R>::Type>(Handle<Entry>::Adopt(out[I]))...};
    }(std::make_index_sequence<Results<R>::count>());
  } else {
    return Ref<R>(Handle<Entry>::Adopt(out[0]));
  }
}

// Runs and encodes whatever it returned. With returns() different from what the type says, a vector
// gives one object per element (RemoteEach).
template <typename R, typename Run>
void RunAndReturn(Invocation& call, Run&& run) {
  if constexpr (std::is_void_v<R>) {
    run();
    call.Return(0, 0);
  } else {
    const R result = run();
    if constexpr (IsTuple<R>::value) {
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        (WriteReturn(call, I, std::get<I>(result)), ...);
      }(std::make_index_sequence<std::tuple_size_v<R>>());
    } else {
      if constexpr (IsVector<R>::value) {
        if (const std::uint32_t returns = call.returns(); returns != 0xffffffffU) {
          if (result.size() != returns) {
            throw InvalidError("the function returned " + std::to_string(result.size()) +
                               " values, RemoteEach asked for " + std::to_string(returns));
          }
          for (std::uint32_t i = 0; i < returns; ++i) WriteReturn<typename IsVector<R>::Value>(call, i, result[i]);
          return;
        }
      }
      WriteReturn(call, 0, result);
    }
  }
}

// Trampolines: plain functions with nothing but types in them.
template <typename F>
void CallFunctor(Invocation& call) {
  using S = decltype(SignatureOf<F>());
  if constexpr (S::known && std::is_empty_v<F>) {  // else CheckFunction has said what is wrong
    RunAndReturn<std::remove_cvref_t<typename S::Return>>(
        call, [&]() -> decltype(auto) { return WithArguments<typename S::Params>(call, F{}); });
  }
}
template <typename F>
void CallPointer(Invocation& call) {
  using S = Signature<F>;
  const F function = reinterpret_cast<F>(call.target);  // NOLINT(performance-no-int-to-ptr)
  RunAndReturn<std::remove_cvref_t<typename S::Return>>(
      call, [&]() -> decltype(auto) { return WithArguments<typename S::Params>(call, function); });
}
// M is a pointer to a method of C or of a base of C.
template <typename C, typename M>
void CallMethod(Invocation& call) {
  using S = Signature<M>;
  std::uint64_t words[2] = {call.target, call.adjust};
  M method;
  static_assert(sizeof method == sizeof words, "the Itanium C++ ABI is expected");
  std::memcpy(&method, words, sizeof method);
  C* self = static_cast<C*>(call.self);
  RunAndReturn<std::remove_cvref_t<typename S::Return>>(call, [&]() -> decltype(auto) {
    return WithArguments<typename S::Params>(
        call, [&](auto&&... args) -> decltype(auto) { return (self->*method)(std::forward<decltype(args)>(args)...); });
  });
}

// Where the code of f is. F is a function pointer or a class without state.
template <typename F>
Site SiteOf(F f) {
  Site site;
  if constexpr (std::is_pointer_v<F>) {
    site.trampoline = &CallPointer<F>;
    site.target = reinterpret_cast<std::uint64_t>(f);
  } else {
    static_cast<void>(f);
    site.trampoline = &CallFunctor<F>;
  }
  return site;
}
template <typename C, typename M>
Site SiteOfMethod(M method) {
  Site site;
  site.trampoline = &CallMethod<C, M>;
  std::uint64_t words[2];
  std::memcpy(words, &method, sizeof words);
  site.target = words[0];
  site.adjust = words[1];
  site.target_is_address = (words[0] & 1) == 0;  // odd: 1 + the offset in the virtual table
  return site;
}

template <typename F>
constexpr void CheckFunction() {
  if constexpr (!std::is_pointer_v<F>) {
    static_assert(
        std::is_empty_v<F>,
        "manta::Task: this lambda captures something, which a worker in another process cannot see: pass it as "
        "an argument of Remote(…) instead");
  }
  static_assert(decltype(SignatureOf<F>())::known,
                "manta::Task: needs a function, or a lambda with plain (not auto) parameters");
}

}  // namespace manta::internal
