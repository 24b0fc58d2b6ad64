// C++ functions and classes that other languages call by name (MANTA_REMOTE, MANTA_REMOTE_CLASS): their trampolines
// read and write plain values (manta/plain.h). Names are registered by statics, under the library that dlopen is
// loading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "manta/actor.h"
#include "manta/internal/call.h"
#include "manta/internal/core.h"
#include "manta/plain.h"

namespace manta::internal {

// What is known of a name. `refs`: bit i is set if parameter i is a Ref, which then is not waited for.
struct PlainCode {
  Trampoline trampoline = nullptr;
  std::uint32_t parameters = 0;
  std::uint32_t returns = 1;  // more: a tuple, each element of which may be an object of its own
  std::uint64_t refs = 0;
  bool creates = false;    // an actor
  bool read_only = false;  // a const method
};
// A function's name, "Class" or "Class.method". Later ones of the same name and library win.
MANTA_EXPORT void RegisterPlain(const std::string& name, const PlainCode& code);
// nullptr: there is none. An empty library: of the program itself.
[[nodiscard]] MANTA_EXPORT const PlainCode* FindPlain(const std::string& library, const std::string& name);
[[nodiscard]] MANTA_EXPORT std::vector<std::string> PlainNames(const std::string& library);
// Loads the library once; its names are then found under this path. Throws NotFoundError with the loader's words.
MANTA_EXPORT void LoadPlainLibrary(const std::string& path);

template <typename Params, std::size_t... I>
consteval bool PlainParams(std::index_sequence<I...>) {
  return (PlainType<std::remove_cvref_t<std::tuple_element_t<I, Params>>>() && ...);
}
template <typename R>
consteval bool PlainReturn() {
  if constexpr (std::is_void_v<R>) {
    return true;
  } else {
    return PlainType<std::remove_cvref_t<R>>();
  }
}
template <typename S>
consteval bool PlainSignature() {
  return PlainParams<typename S::Params>(std::make_index_sequence<std::tuple_size_v<typename S::Params>>()) &&
         PlainReturn<typename S::Return>();
}

template <typename D>
D ReadPlainArgument(Invocation& call, std::vector<KeepAlive>* keeps) {
  KeepAlive keep;
  const View view = call.Next(&keep);
  if (keep != nullptr) keeps->push_back(keep);
  if (view.size == 0) {  // what a function that returns nothing left
    const std::byte none[] = {static_cast<std::byte>(PlainTag::kNone)};
    return Decode<PlainValue<D>>(none).value;
  }
  return std::move(Decode<PlainValue<D>>(view.bytes(), keep, keeps).value);
}

template <typename Params, typename Run>
decltype(auto) WithPlainArguments(Invocation& call, Run&& run) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) -> decltype(auto) {
    std::vector<KeepAlive> keeps;
    std::tuple<std::remove_cvref_t<std::tuple_element_t<I, Params>>...> values{
        ReadPlainArgument<std::remove_cvref_t<std::tuple_element_t<I, Params>>>(call, &keeps)...};
    return run(static_cast<std::tuple_element_t<I, Params>&&>(std::get<I>(values))...);
  }(std::make_index_sequence<std::tuple_size_v<Params>>());
}

template <typename R, typename Run>
void RunAndReturnPlain(Invocation& call, Run&& run) {
  if constexpr (std::is_void_v<R>) {
    run();
    call.Return(0, 0);
  } else if constexpr (IsTuple<R>::value) {
    R result = run();
    if (call.returns() != std::tuple_size_v<R>) return WriteReturn(call, 0, PlainValue<R>(std::move(result)));
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (WriteReturn(call, I, PlainValue<std::tuple_element_t<I, R>>(std::move(std::get<I>(result)))), ...);
    }(std::make_index_sequence<std::tuple_size_v<R>>());
  } else {
    WriteReturn(call, 0, PlainValue<R>(run()));
  }
}

template <auto kFunction>
void PlainCall(Invocation& call) {
  using S = Signature<decltype(kFunction)>;
  RunAndReturnPlain<std::remove_cvref_t<typename S::Return>>(
      call, [&]() -> decltype(auto) { return WithPlainArguments<typename S::Params>(call, kFunction); });
}
template <typename C, auto kMethod>
void PlainMethod(Invocation& call) {
  using S = Signature<decltype(kMethod)>;
  C* self = static_cast<C*>(call.self);
  RunAndReturnPlain<std::remove_cvref_t<typename S::Return>>(call, [&]() -> decltype(auto) {
    return WithPlainArguments<typename S::Params>(call, [&](auto&&... args) -> decltype(auto) {
      return (self->*kMethod)(std::forward<decltype(args)>(args)...);
    });
  });
}
template <typename C, auto kFactory>
void PlainCreate(Invocation& call) {
  using S = Signature<decltype(kFactory)>;
  std::unique_ptr<C> made(WithPlainArguments<typename S::Params>(call, kFactory));
  call.self = made.release();
  SetLife<C>(call);
}

template <typename S>
PlainCode PlainCodeOf(Trampoline trampoline) {
  PlainCode code;
  code.trampoline = trampoline;
  if constexpr (requires { S::read_only; }) code.read_only = S::read_only;
  code.parameters = std::tuple_size_v<typename S::Params>;
  if constexpr (IsTuple<std::remove_cvref_t<typename S::Return>>::value)
    code.returns = std::tuple_size_v<std::remove_cvref_t<typename S::Return>>;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((code.refs |= PlainShape<std::remove_cvref_t<std::tuple_element_t<I, typename S::Params>>>::kRef
                       ? std::uint64_t{1} << (I % 64)
                       : 0),
     ...);
  }(std::make_index_sequence<std::tuple_size_v<typename S::Params>>());
  return code;
}

// Of a function whose types cannot cross languages nothing is registered: calls from C++ do without.
template <auto kFunction>
void RegisterPlainFunction(const char* name) {
  using S = Signature<decltype(kFunction)>;
  if constexpr (PlainSignature<S>()) RegisterPlain(name, PlainCodeOf<S>(&PlainCall<kFunction>));
}

// The n-th of "&Counter::Add, &Counter::Total", without what stands before the name.
inline std::string NthName(std::string_view list, std::size_t n) {
  for (; n > 0; --n) list.remove_prefix(list.find(',') + 1);
  std::string_view name = list.substr(0, list.find(','));
  if (const std::size_t at = name.rfind("::"); at != std::string_view::npos) name.remove_prefix(at + 2);
  while (!name.empty() && (name.back() == ' ' || name.back() == '\n')) name.remove_suffix(1);
  return std::string(name);
}

template <typename C, auto kFactory, auto... kMethods>
bool RegisterPlainClass(const char* name, const char* methods) {
  using F = Signature<decltype(kFactory)>;
  static_assert(F::known && std::is_pointer_v<decltype(kFactory)>,
                "MANTA_REMOTE_CLASS(Class, factory, &Class::method…): the second must be a function that makes one");
  static_assert(std::is_same_v<typename F::Return, C*> || std::is_same_v<typename F::Return, std::unique_ptr<C>>,
                "MANTA_REMOTE_CLASS: the factory must return Class* or std::unique_ptr<Class>");
  static_assert(PlainParams<typename F::Params>(std::make_index_sequence<std::tuple_size_v<typename F::Params>>()),
                "MANTA_REMOTE_CLASS: a parameter of the factory cannot come from another language; see manta/plain.h");
  static_assert((PlainSignature<Signature<decltype(kMethods)>>() && ...),
                "MANTA_REMOTE_CLASS: a method's parameter or result cannot cross languages; see manta/plain.h");
  PlainCode create = PlainCodeOf<F>(&PlainCreate<C, kFactory>);
  create.creates = true;
  create.returns = 1;
  RegisterPlain(name, create);
  std::size_t n = 0;
  (RegisterPlain(std::string(name) + "." + NthName(methods, n++),
                 PlainCodeOf<Signature<decltype(kMethods)>>(&PlainMethod<C, kMethods>)),
   ...);
  return true;
}

}  // namespace manta::internal

// Lets other languages make actors of a class, and call these of its methods. The factory is a function that returns
// Class* or std::unique_ptr<Class>. At namespace scope: MANTA_REMOTE_CLASS(Counter, MakeCounter, &Counter::Add)
#define MANTA_REMOTE_CLASS(CLASS, FACTORY, ...)            \
  [[maybe_unused]] static const bool manta_class_##CLASS = \
      ::manta::internal::RegisterPlainClass<CLASS, &FACTORY __VA_OPT__(, ) __VA_ARGS__>(#CLASS, #__VA_ARGS__);
