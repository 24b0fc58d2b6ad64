// Task(f).Remote(args…) runs f in a worker process and gives a Ref to its result at once.
//
//   int Square(int x) { return x * x; }
//   manta::Ref<int> nine = manta::Task(Square).Remote(3);
//
// Arguments are values, or Refs: where the function takes T, a Ref<T> is waited for and its value
// passed; where it takes Ref<T>, the Ref itself. A function returning a tuple gives one Ref for each
// element. Throws (when submitting) InvalidError if Manta is not initialised, OutOfMemoryError.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "manta/internal/call.h"
#include "manta/options.h"
#include "manta/placement_group.h"
#include "manta/ref.h"

namespace manta {

template <typename F>
class TaskCaller {
  using S = decltype(internal::SignatureOf<F>());

 public:
  explicit TaskCaller(internal::Site site) : site_(site) {}

  template <typename... A>
  auto Remote(A&&... args) {
    using R = std::remove_cvref_t<typename S::Return>;
    internal::Entry* out[internal::Results<R>::count == 0 ? 1 : internal::Results<R>::count];
    Start(internal::Results<R>::count | (internal::IsVector<R>::value ? kWhole : 0), out, std::forward<A>(args)...);
    return internal::TakeResults<R>(out);
  }

  // For a function that returns vector<T> of `count` elements: one Ref for each.
  template <typename... A>
  auto RemoteEach(std::uint32_t count, A&&... args) {
    using R = std::remove_cvref_t<typename S::Return>;
    static_assert(internal::IsVector<R>::value, "manta: RemoteEach needs a function that returns a vector");
    std::vector<internal::Entry*> out(count);
    Start(count, out.data(), std::forward<A>(args)...);
    std::vector<Ref<typename internal::IsVector<R>::Value>> refs;
    refs.reserve(count);
    for (internal::Entry* entry : out) refs.emplace_back(internal::Handle<internal::Entry>::Adopt(entry));
    return refs;
  }

  TaskCaller& SetName(std::string name) {
    return Change([&](TaskOptions& o) { o.name = std::move(name); });
  }
  TaskCaller& SetCpus(double cpus) {
    return Change([&](TaskOptions& o) { o.cpus = cpus; });
  }
  TaskCaller& SetGpus(double gpus) {
    return Change([&](TaskOptions& o) { o.gpus = gpus; });
  }
  // "CPU" and "GPU" mean the above.
  TaskCaller& SetResource(const std::string& name, double amount) {
    return Change([&](TaskOptions& o) {
      if (name == "CPU")
        o.cpus = amount;
      else if (name == "GPU")
        o.gpus = amount;
      else
        o.resources[name] = amount;
    });
  }
  TaskCaller& SetResources(const std::map<std::string, double>& resources) {
    for (const auto& [name, amount] : resources) SetResource(name, amount);
    return *this;
  }
  // How often to run it again after its worker died; -1: no limit. Default 3.
  TaskCaller& SetRetries(int retries) {
    return Change([&](TaskOptions& o) { o.retries = retries; });
  }
  // Run it again, too, when it throws one of these (or something derived from them).
  template <typename... E>
  TaskCaller& RetryOn() {
    return Change([](TaskOptions& o) { o.retry_match = reinterpret_cast<std::uint64_t>(&Matches<E...>); });
  }
  TaskCaller& SetTimeout(Micros timeout) {
    return Change([&](TaskOptions& o) { o.timeout = timeout; });
  }
  TaskCaller& SetPriority(int priority) {
    return Change([&](TaskOptions& o) { o.priority = priority; });
  }
  // Where it runs (manta/placement.h). By name ("n2") or number; `soft`: another node will do when that one is gone.
  TaskCaller& OnNode(std::string node, bool soft = false) {
    return Change([&](TaskOptions& o) {
      o.placement.node = std::move(node);
      o.placement.soft = soft;
    });
  }
  // Each on the next node, whoever submits it.
  TaskCaller& Spread() {
    return Change([&](TaskOptions& o) { o.placement.spread = true; });
  }
  TaskCaller& Labels(std::vector<LabelRule> rules) {
    return Change([&](TaskOptions& o) { o.placement.labels = std::move(rules); });
  }
  TaskCaller& PreferLabels(std::vector<LabelRule> rules) {
    return Change([&](TaskOptions& o) { o.placement.prefer = std::move(rules); });
  }
  // With the resources of a bundle of the group; -1: of any.
  TaskCaller& InBundle(const PlacementGroup& group, int index = -1) {
    return Change([&](TaskOptions& o) {
      o.placement.group = group.id();
      o.placement.bundle = index;
    });
  }

 private:
  static constexpr std::uint32_t kWhole = 0x80000000U;  // one value although it is a vector

  // Called while an exception is being handled.
  template <typename E>
  static bool MatchesOne() {
    try {
      throw;
    } catch (const E&) {
      return true;
    } catch (...) {
      return false;
    }
  }
  template <typename... E>
  static bool Matches() {
    return (MatchesOne<E>() || ...);
  }

  template <typename Edit>
  TaskCaller& Change(Edit edit) {
    edit(options_);
    plan_ = nullptr;
    plain_ = false;
    return *this;
  }

  template <typename... A>
  void Start(std::uint32_t returns, internal::Entry** out, A&&... args) {
    if (!plain_ && plan_ == nullptr) plan_ = internal::Intern(options_);
    internal::RefScope scope;
    internal::Arguments& arguments = internal::Arguments::ForThisThread();
    try {
      internal::AddArguments<typename S::Params>(arguments, std::forward<A>(args)...);
      internal::Submit(site_, arguments, scope, plan_, returns, out);
    } catch (...) {
      arguments.Done();
      throw;
    }
    arguments.Done();
  }

  internal::Site site_;
  const internal::Plan* plan_ = nullptr;
  bool plain_ = true;  // default options: nothing to intern
  TaskOptions options_;
};

template <typename F>
TaskCaller<F> Task(F f) {
  internal::CheckFunction<F>();
  return TaskCaller<F>(internal::SiteOf(f));
}

namespace internal {
struct Registrar {
  template <typename F>
  Registrar(const char* name, F f) {
    const Site site = SiteOf(f);
    RegisterNamed(name, site.trampoline, site.target);
  }
};
}  // namespace internal

}  // namespace manta

// Gives a function a stable name, so that another build of the program (or another language) can
// call it. At namespace scope: MANTA_REMOTE(Square)
#define MANTA_REMOTE(FUNCTION) \
  [[maybe_unused]] static const ::manta::internal::Registrar manta_registrar_##FUNCTION(#FUNCTION, &FUNCTION);
