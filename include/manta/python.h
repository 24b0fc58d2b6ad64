// Python functions and classes, called from C++ by module and name.
//
//   manta::Ref<manta::PlainValue<double>> root = manta::PyTask<double>("math", "sqrt").Remote(2.0);
//   auto words = manta::PyActor("collections", "Counter").Remote();
//   words.Task<void>("update").Remote(std::vector<std::string>{"a", "b", "a"});
//
// Arguments and results are plain values (manta/plain.h) and Refs of them, which are waited for. A worker starts Python
// when it first needs it (some 50 ms): the interpreter of $MANTA_PYTHON, else python3, with its sys.path, the folder of
// the program and $PYTHONPATH, and the package manta in it. It must have its libpython as a shared library. An
// exception arrives as TaskError with the Python traceback. Throws as Task(…).Remote does.
#pragma once

#if __cplusplus < 202002L
#include "manta/internal/needs_cpp20.h"
#endif

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "manta/internal/call.h"
#include "manta/internal/foreign_call.h"
#include "manta/options.h"
#include "manta/plain.h"
#include "manta/ref.h"

namespace manta {

namespace internal {

template <typename A>
void AddPlainArgument(Arguments& arguments, const A& argument) {
  if constexpr (IsRef<A>::value) {
    static_assert(
        PlainShape<A>::kRef,
        "manta: Python cannot read what this Ref names: put a manta::PlainValue(value), and pass the Ref to that");
    arguments.AddRef(argument.entry());
  } else {
    AddValue(arguments, PlainValue<typename std::conditional_t<std::is_array_v<A>, std::type_identity<std::string>,
                                                               std::type_identity<A>>::type>(argument));
  }
}

template <typename... A>
void AddForeignCall(Arguments& arguments, ForeignKind kind, const std::string& name, const A&... args) {
  ForeignHead head;
  head.kind = kind;
  head.flags = ForeignHead::kPlain;
  if (name.size() > UINT16_MAX) throw InvalidError("a name of " + std::to_string(name.size()) + " bytes is too long");
  head.name = static_cast<std::uint16_t>(name.size());
  head.values = sizeof...(A);
  std::byte* out = arguments.AddValue(sizeof head + name.size());
  std::memcpy(out, &head, sizeof head);
  std::memcpy(out + sizeof head, name.data(), name.size());
  (AddPlainArgument(arguments, args), ...);
}

inline Site ForeignSite() {
  Site site;
  site.trampoline = &RunForeign;
  return site;
}

template <typename R>
using PlainRef = std::conditional_t<std::is_void_v<R>, Ref<void>, Ref<PlainValue<R>>>;

// The thread's arguments, given back however the call ends.
class ArgumentsUse {
 public:
  ArgumentsUse() : arguments(Arguments::ForThisThread()) {}
  ~ArgumentsUse() { arguments.Done(); }
  ArgumentsUse(const ArgumentsUse&) = delete;
  Arguments& arguments;
};

}  // namespace internal

template <typename R>
class PyTaskCaller {
 public:
  PyTaskCaller(const std::string& module, const std::string& function) : name_(module + "\n" + function) {
    options.name = module + "." + function;
  }

  template <typename... A>
  internal::PlainRef<R> Remote(const A&... args) {
    internal::RefScope scope;
    const internal::ArgumentsUse use;
    internal::AddForeignCall(use.arguments, internal::ForeignKind::kNamed, name_, args...);
    internal::Entry* out = nullptr;
    internal::Submit(internal::ForeignSite(), use.arguments, scope, internal::Intern(options), 1, &out);
    return internal::PlainRef<R>(internal::Handle<internal::Entry>::Adopt(out));
  }

  TaskOptions options;  // as Task's Set… functions set them

 private:
  std::string name_;
};

// R is what the result is read as; void: nobody looks.
template <typename R = void>
PyTaskCaller<R> PyTask(const std::string& module, const std::string& function) {
  return PyTaskCaller<R>(module, function);
}

template <typename R>
class PyMethodCaller {
 public:
  PyMethodCaller(internal::ActorEntry* actor, std::string name) : actor_(actor), name_(std::move(name)) {}

  template <typename... A>
  internal::PlainRef<R> Remote(const A&... args) {
    internal::RefScope scope;
    const internal::ArgumentsUse use;
    internal::AddForeignCall(use.arguments, internal::ForeignKind::kMethod, name_, args...);
    TaskOptions options;
    options.name = name_;
    internal::Entry* out = nullptr;
    internal::CallActor(actor_, internal::ForeignSite(), use.arguments, scope, internal::Intern(options), 1, &out);
    return internal::PlainRef<R>(internal::Handle<internal::Entry>::Adopt(out));
  }

 private:
  internal::ActorEntry* actor_;
  std::string name_;
};

// Calls a Python actor. Copies are cheap; the actor ends with its last handle, in whichever language.
class PyActorHandle {
 public:
  PyActorHandle() = default;  // names nothing; using it throws InvalidError
  explicit PyActorHandle(internal::Handle<internal::ActorEntry> handle) : handle_(std::move(handle)) {}

  // The result must be used before the handle goes.
  template <typename R = void>
  [[nodiscard]] PyMethodCaller<R> Task(std::string method) const {
    return PyMethodCaller<R>(entry(), std::move(method));
  }
  void Kill(bool restart = false) const { internal::KillActor(entry(), restart); }

  [[nodiscard]] bool empty() const { return handle_.get() == nullptr; }
  [[nodiscard]] std::string id() const { return internal::IdText(entry()); }
  [[nodiscard]] internal::ActorEntry* entry() const {
    if (handle_.get() == nullptr) internal::ThrowEmptyRef();
    return handle_.get();
  }

 private:
  internal::Handle<internal::ActorEntry> handle_;
};

template <>
struct Codec<PyActorHandle> {
  template <typename Archive>
  static void Write(Archive& archive, const PyActorHandle& handle) {
    std::byte name[internal::kRefBytes]{};
    if constexpr (!Archive::kCounting) internal::EncodeActor(handle.empty() ? nullptr : handle.entry(), name);
    archive.Bytes(name, sizeof name);
  }
  static PyActorHandle Read(Reader& reader) {
    std::byte name[internal::kRefBytes];
    reader.Bytes(name, sizeof name);
    return PyActorHandle(internal::Handle<internal::ActorEntry>::Adopt(internal::DecodeActor(name)));
  }
};

class PyActorCreator {
 public:
  PyActorCreator(const std::string& module, const std::string& name) : name_(module + "\n" + name), class_(name) {}

  template <typename... A>
  PyActorHandle Remote(const A&... args) {
    internal::RefScope scope;
    const internal::ArgumentsUse use;
    internal::AddForeignCall(use.arguments, internal::ForeignKind::kNamedCreate, name_, args...);
    return PyActorHandle(internal::Handle<internal::ActorEntry>::Adopt(
        internal::CreateActor(internal::ForeignSite(), use.arguments, scope, settings, class_)));
  }

  ActorSettings settings;  // as Actor's Set… functions set them

 private:
  std::string name_;
  std::string class_;
};

inline PyActorCreator PyActor(const std::string& module, const std::string& name) { return {module, name}; }

// A named actor made by anybody, in Python. Throws NotFoundError.
inline PyActorHandle GetPyActor(const std::string& name, const std::string& space = {}) {
  return PyActorHandle(internal::Handle<internal::ActorEntry>::Adopt(internal::FindActor(name, space)));
}

}  // namespace manta
