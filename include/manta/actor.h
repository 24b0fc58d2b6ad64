// An actor is an object that lives in a worker process of its own; its methods are called through
// handles, which can be copied, passed to tasks and stored in values. Calls of one caller run in
// order, one at a time, unless asked otherwise. A method that throws fails its call, not the actor.
// The actor ends when its last handle goes, or by Kill.
//
//   auto counter = manta::Actor<Counter>().Remote(10);
//   manta::Ref<int> value = counter.Task(&Counter::Add).Remote(5);
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "manta/internal/call.h"
#include "manta/options.h"
#include "manta/placement_group.h"
#include "manta/ref.h"

namespace manta {

namespace internal {

template <typename T>
struct IsUniquePtr : std::false_type {};
template <typename T>
struct IsUniquePtr<std::unique_ptr<T>> : std::true_type {
  using Value = T;
};

// The class that a factory returning R makes.
template <typename R>
struct Made {
  using Class = R;
};
template <typename C>
struct Made<C*> {
  using Class = C;
};
template <typename C>
struct Made<std::unique_ptr<C>> {
  using Class = C;
};

template <typename C>
void Destroy(void* self) {
  delete static_cast<C*>(self);
}

template <typename C, typename R>
C* Own(R made) {
  if constexpr (std::is_pointer_v<R>)
    return made;
  else if constexpr (IsUniquePtr<R>::value)
    return made.release();
  else
    return new C(std::move(made));
}

template <typename F>
void Create(Invocation& call) {
  using S = decltype(SignatureOf<F>());
  using C = typename Made<std::remove_cvref_t<typename S::Return>>::Class;
  if constexpr (std::is_pointer_v<F>) {
    const F factory = reinterpret_cast<F>(call.target);  // NOLINT(performance-no-int-to-ptr)
    call.self = Own<C>(WithArguments<typename S::Params>(call, factory));
  } else {
    call.self = Own<C>(WithArguments<typename S::Params>(call, F{}));
  }
  call.destroy = &Destroy<C>;
}

// What a constructor argument of type A arrives as: a Ref<T> as T where C can be made from that.
template <typename C, typename... A>
void Construct(Invocation& call) {
  call.self = WithArguments<std::tuple<A...>>(
      call, [](auto&&... args) { return new C(std::forward<decltype(args)>(args)...); });
  call.destroy = &Destroy<C>;
}

template <typename A>
struct Unref {
  using Type = A;
};
template <typename T>
struct Unref<Ref<T>> {
  using Type = T;
};
template <std::size_t N>
struct Unref<char[N]> {
  using Type = std::string;
};
template <>
struct Unref<const char*> {
  using Type = std::string;
};

}  // namespace internal

template <typename C, typename M>
class MethodCaller {
  using S = internal::Signature<M>;

 public:
  MethodCaller(internal::ActorEntry* actor, internal::Site site) : actor_(actor), site_(site) {}

  template <typename... A>
  auto Remote(A&&... args) {
    using R = std::remove_cvref_t<typename S::Return>;
    internal::Entry* out[internal::Results<R>::count == 0 ? 1 : internal::Results<R>::count];
    if (!plain_ && plan_ == nullptr) plan_ = internal::Intern(options_);
    internal::RefScope scope;
    internal::Arguments& arguments = internal::Arguments::ForThisThread();
    try {
      internal::AddArguments<typename S::Params>(arguments, std::forward<A>(args)...);
      internal::CallActor(actor_, site_, arguments, scope, plan_,
                          internal::Results<R>::count | (internal::IsVector<R>::value ? 0x80000000U : 0), out);
    } catch (...) {
      arguments.Done();
      throw;
    }
    arguments.Done();
    return internal::TakeResults<R>(out);
  }

  MethodCaller& SetName(std::string name) {
    options_.name = std::move(name);
    return Changed();
  }
  // How often this call is sent again when it dies with the actor, which has to have restarts left: instead of the
  // actor's SetMaxCallRetries. -1: no limit.
  MethodCaller& SetMaxRetries(std::int64_t retries) {
    options_.call_retries = retries;
    return Changed();
  }

 private:
  MethodCaller& Changed() {
    plain_ = false;
    plan_ = nullptr;
    return *this;
  }

  internal::ActorEntry* actor_;
  internal::Site site_;
  TaskOptions options_;
  const internal::Plan* plan_ = nullptr;
  bool plain_ = true;
};

template <typename C>
class ActorHandle {
 public:
  ActorHandle() = default;  // names nothing; using it throws InvalidError
  explicit ActorHandle(internal::Handle<internal::ActorEntry> handle) : handle_(std::move(handle)) {}

  // The result must be used before the handle goes.
  template <typename M>
  [[nodiscard]] MethodCaller<C, M> Task(M method) const {
    static_assert(std::is_member_function_pointer_v<M>, "manta: handle.Task needs a method, as in &Counter::Add");
    static_assert(std::is_base_of_v<typename internal::Signature<M>::Class, C>,
                  "manta: that is a method of another class");
    return MethodCaller<C, M>(entry(), internal::SiteOfMethod<C>(method));
  }

  [[nodiscard]] bool empty() const { return handle_.get() == nullptr; }
  [[nodiscard]] std::string id() const { return internal::IdText(entry()); }
  [[nodiscard]] internal::ActorEntry* entry() const {
    if (handle_.get() == nullptr) internal::ThrowEmptyRef();
    return handle_.get();
  }

 private:
  internal::Handle<internal::ActorEntry> handle_;
};

template <typename C>
struct Codec<ActorHandle<C>> {
  template <typename Archive>
  static void Write(Archive& archive, const ActorHandle<C>& handle) {
    std::byte name[internal::kRefBytes]{};
    if constexpr (!Archive::kCounting) internal::EncodeActor(handle.empty() ? nullptr : handle.entry(), name);
    archive.Bytes(name, sizeof name);
  }
  static ActorHandle<C> Read(Reader& reader) {
    std::byte name[internal::kRefBytes];
    reader.Bytes(name, sizeof name);
    return ActorHandle<C>(internal::Handle<internal::ActorEntry>::Adopt(internal::DecodeActor(name)));
  }
};

// F is a factory, or void for C's own constructor.
template <typename C, typename F>
class ActorCreator {
 public:
  explicit ActorCreator(internal::Site site) : site_(site) {}

  // Returns at once; a failing constructor fails the calls. With a name, throws InvalidError if it is
  // taken (unless GetIfExists).
  template <typename... A>
  ActorHandle<C> Remote(A&&... args) {
    internal::RefScope scope;
    internal::Arguments& arguments = internal::Arguments::ForThisThread();
    internal::ActorEntry* actor = nullptr;
    try {
      if constexpr (std::is_void_v<F>) {
        using Params = std::tuple<typename internal::Unref<std::remove_cvref_t<A>>::Type...>;
        static_assert(std::is_constructible_v<C, typename internal::Unref<std::remove_cvref_t<A>>::Type&&...>,
                      "manta: the actor's class has no constructor for these arguments");
        site_.trampoline = &internal::Construct<C, typename internal::Unref<std::remove_cvref_t<A>>::Type...>;
        internal::AddArguments<Params>(arguments, std::forward<A>(args)...);
      } else {
        internal::AddArguments<typename decltype(internal::SignatureOf<F>())::Params>(arguments,
                                                                                      std::forward<A>(args)...);
      }
      actor = internal::CreateActor(site_, arguments, scope, settings_, typeid(C).name());
    } catch (...) {
      arguments.Done();
      throw;
    }
    arguments.Done();
    return ActorHandle<C>(internal::Handle<internal::ActorEntry>::Adopt(actor));
  }

  ActorCreator& SetName(std::string name) { return settings_.name = std::move(name), *this; }
  ActorCreator& SetNamespace(std::string space) { return settings_.space = std::move(space), *this; }
  ActorCreator& SetCpus(double cpus) { return settings_.cpus = cpus, *this; }
  ActorCreator& SetGpus(double gpus) { return settings_.gpus = gpus, *this; }
  ActorCreator& SetResource(const std::string& name, double amount) {
    if (name == "CPU")
      settings_.cpus = amount;
    else if (name == "GPU")
      settings_.gpus = amount;
    else
      settings_.resources[name] = amount;
    return *this;
  }
  ActorCreator& SetResources(const std::map<std::string, double>& resources) {
    for (const auto& [name, amount] : resources) SetResource(name, amount);
    return *this;
  }
  // Calls run at a time, on as many threads. Above one they are not ordered.
  ActorCreator& SetMaxConcurrency(std::uint32_t calls) { return settings_.concurrency = calls, *this; }
  // A call whose arguments are ready may overtake one that still waits for its own.
  ActorCreator& SetAsyncOrder() { return settings_.ordered = false, *this; }
  ActorCreator& SetMaxRestarts(std::int64_t restarts) { return settings_.max_restarts = restarts, *this; }
  ActorCreator& SetMaxCallRetries(std::int64_t retries) { return settings_.max_call_retries = retries, *this; }
  ActorCreator& SetDetached() { return settings_.detached = true, *this; }
  ActorCreator& GetIfExists() { return settings_.get_if_exists = true, *this; }
  // Where it runs (manta/placement.h). By name ("n2") or number; `soft`: another node will do when that one is gone.
  ActorCreator& OnNode(std::string node, bool soft = false) {
    settings_.placement.node = std::move(node);
    settings_.placement.soft = soft;
    return *this;
  }
  // Each on the next node, whoever submits it.
  ActorCreator& Spread() { return settings_.placement.spread = true, *this; }
  ActorCreator& Labels(std::vector<LabelRule> rules) { return settings_.placement.labels = std::move(rules), *this; }
  ActorCreator& PreferLabels(std::vector<LabelRule> rules) {
    return settings_.placement.prefer = std::move(rules), *this;
  }
  // With the resources of a bundle of the group; -1: of any.
  ActorCreator& InBundle(const PlacementGroup& group, int index = -1) {
    settings_.placement.group = group.id();
    settings_.placement.bundle = index;
    return *this;
  }

 private:
  internal::Site site_;
  ActorSettings settings_;
};

template <typename C>
ActorCreator<C, void> Actor() {
  static_assert(std::is_class_v<C>, "manta::Actor<C>(): C must be a class");
  return ActorCreator<C, void>(internal::Site{});
}
// By a function (or lambda without captures) that returns C, C* or unique_ptr<C>.
template <typename F>
auto Actor(F factory) {
  internal::CheckFunction<F>();
  using S = decltype(internal::SignatureOf<F>());
  using C = typename internal::Made<std::remove_cvref_t<typename S::Return>>::Class;
  internal::Site site;  // not SiteOf, whose trampoline would encode the actor as a return value
  site.trampoline = &internal::Create<F>;
  if constexpr (std::is_pointer_v<F>)
    site.target = reinterpret_cast<std::uint64_t>(factory);
  else
    static_cast<void>(factory);
  return ActorCreator<C, F>(site);
}

// A named actor of this namespace. Throws NotFoundError.
template <typename C>
ActorHandle<C> GetActor(const std::string& name, const std::string& space = {}) {
  return ActorHandle<C>(internal::Handle<internal::ActorEntry>::Adopt(internal::FindActor(name, space)));
}

// Ends the actor at once; calls not yet answered fail with ActorDiedError. With `restart` it comes
// back if it has restarts left.
template <typename C>
void Kill(const ActorHandle<C>& actor, bool restart = false) {
  internal::KillActor(actor.entry(), restart);
}

}  // namespace manta
