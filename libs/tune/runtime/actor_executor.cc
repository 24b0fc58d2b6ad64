#include "tune/runtime/actor_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "manta/manta.h"

namespace manta::tune::runtime {
namespace {

using internal::Beginning;
using internal::Reply;
using internal::Said;
using internal::TrialHost;

// How the engine describes the end of a process that was killed from outside. The public errors carry text only.
constexpr const char* kKilled = "SIGKILL";

GroupStrategy StrategyOf(const std::string& name) {
  if (name == "PACK") return GroupStrategy::kPack;
  if (name == "SPREAD") return GroupStrategy::kSpread;
  if (name == "STRICT_PACK") return GroupStrategy::kStrictPack;
  if (name == "STRICT_SPREAD") return GroupStrategy::kStrictSpread;
  throw InvalidError("there is no placement strategy \"" + name + "\"; use PACK, SPREAD, STRICT_PACK or STRICT_SPREAD");
}

struct Host {
  ActorHandle<TrialHost> actor;
  PlacementGroup group;
  TrialResources resources;
};

struct Running {
  enum class Asked { kNothing, kBegin, kNext, kSave };
  Host host;
  std::string folder;
  std::string run_folder;
  Asked asked = Asked::kNothing;
  Ref<Reply> reply;
  int unanswered = 0;  // results of the last reply that the run has not answered yet
  bool over = false;   // the last reply ended the trial: there is nothing to continue
};

class ActorExecutor final : public TrialExecutor {
 public:
  explicit ActorExecutor(MakeHost make) : make_(std::move(make)) {}
  ~ActorExecutor() override {
    for (auto& [trial, running] : running_) Discard(running.host);
    for (Host& host : idle_) Discard(host);
  }

  Amounts Capacity() override { return ClusterResources(); }

  void Start(const StartTrial& start, const std::string& folder, const std::string& run_folder) override {
    Running running;
    running.folder = folder;
    running.run_folder = run_folder;
    auto idle = std::find_if(idle_.begin(), idle_.end(),
                             [&](const Host& host) { return start.reuse && host.resources == start.resources; });
    try {
      if (idle != idle_.end()) {
        running.host = std::move(*idle);
        idle_.erase(idle);
      } else {
        if (!idle_.empty()) {  // an idle process of other resources makes room
          Discard(idle_.front());
          idle_.pop_front();
        }
        running.host = NewHost(start.resources);
      }
      Beginning beginning{start.trial,           Id(folder),  folder, run_folder, start.config, start.checkpoint,
                          start.next_checkpoint, start.window};
      running.reply = running.host.actor.Task(&TrialHost::Begin).Remote(beginning);
    } catch (const InfeasibleError& error) {
      early_.push_back({TrialFailed{start.trial, FailureKind::kInfeasible, error.what()}});
      return;
    }
    running.asked = Running::Asked::kBegin;
    running_[start.trial] = std::move(running);
  }

  void Continue(const ContinueTrial& action) override {
    Running* running = Find(action.trial);
    if (running == nullptr || --running->unanswered > 0 || running->over) return;
    running->unanswered = 0;
    Ask(*running, Running::Asked::kNext, running->host.actor.Task(&TrialHost::Next).Remote());
  }

  void Save(const SaveTrial& action) override {
    if (Running* running = Find(action.trial))
      Ask(*running, Running::Asked::kSave, running->host.actor.Task(&TrialHost::Save).Remote());
  }

  // A trial that computes saves when its step is over; the answer to the step is dropped.
  void Pause(const PauseTrial& action) override { Save(SaveTrial{action.trial}); }

  void Exploit(const ExploitTrial& action) override {
    Running* running = Find(action.trial);
    if (running == nullptr) return;
    Beginning beginning{action.trial,  Id(running->folder), running->folder,        running->run_folder,
                        action.config, action.checkpoint,   action.next_checkpoint, 1};
    running->unanswered = 0;
    Ask(*running, Running::Asked::kBegin, running->host.actor.Task(&TrialHost::Exploit).Remote(beginning));
  }

  void Stop(const StopTrial& action) override {
    auto found = running_.find(action.trial);
    if (found == running_.end()) return;
    const bool busy = found->second.asked == Running::Asked::kNext || found->second.asked == Running::Asked::kSave;
    if (action.keep_process && !busy) {
      (void)found->second.host.actor.Task(&TrialHost::End).Remote();  // calls run in order: the next Begin comes after
      idle_.push_back(std::move(found->second.host));
    } else {
      Discard(found->second.host);
    }
    running_.erase(found);
  }

  std::vector<Happening> Wait(double seconds) override {
    std::vector<Happening> happened = std::exchange(early_, {});
    std::vector<Ref<Reply>> refs;
    std::vector<TrialNumber> owners;
    for (const auto& [trial, running] : running_) {
      if (running.asked == Running::Asked::kNothing) continue;
      refs.push_back(running.reply);
      owners.push_back(trial);
    }
    const auto timeout = std::chrono::microseconds(
        happened.empty() ? static_cast<std::int64_t>(std::clamp(seconds, 0.0, 3600.0) * 1e6) : 0);
    if (refs.empty()) {
      if (timeout.count() > 0) std::this_thread::sleep_for(std::min<Micros>(timeout, std::chrono::milliseconds(100)));
      return happened;
    }
    const std::vector<std::size_t> ready = ::manta::internal::FirstReady(refs, 1, timeout);
    if (ready.empty()) return happened;
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (i == ready.front() || ::manta::internal::IsReady(refs[i].entry())) Take(owners[i], happened);
    }
    return happened;
  }

 private:
  Running* Find(TrialNumber trial) {
    auto found = running_.find(trial);
    return found == running_.end() ? nullptr : &found->second;
  }
  static std::string Id(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }
  static void Ask(Running& running, Running::Asked asked, Ref<Reply> reply) {
    running.asked = asked;
    running.reply = std::move(reply);
  }

  Host NewHost(const TrialResources& resources) {
    Host host;
    host.resources = resources;
    auto creator = make_();
    const Amounts first = resources.bundles.empty() ? Amounts() : resources.bundles.front();
    creator.SetResources(first);
    if (resources.bundles.size() > 1 || resources.strategy != "PACK") {
      host.group = CreatePlacementGroup(resources.bundles, StrategyOf(resources.strategy));
      creator.InBundle(host.group, 0);
    }
    host.actor = creator.Remote();
    return host;
  }
  static void Discard(const Host& host) {
    Kill(host.actor);
    if (!host.group.empty()) RemovePlacementGroup(host.group);
  }

  // Turns the answer of a trial's process into happenings.
  void Take(TrialNumber trial, std::vector<Happening>& happened) {
    Running& running = running_.at(trial);
    const Running::Asked asked = std::exchange(running.asked, Running::Asked::kNothing);
    try {
      Reply reply = std::exchange(running.reply, {}).Get();
      if (!reply.checkpoint_error.empty()) {
        happened.push_back({TrialFailed{trial, FailureKind::kCheckpointLost, reply.checkpoint_error}});
      } else if (asked == Running::Asked::kBegin) {
        happened.push_back({TrialStarted{trial}});
      } else if (asked == Running::Asked::kSave) {
        happened.push_back({TrialSaved{trial, std::move(reply.checkpoint)}});
      }
      for (Said& said : reply.said) {
        if (said.kind == Said::Kind::kResult) {
          ++running.unanswered;
          happened.push_back({std::move(said.result), std::move(said.origin)});
        } else if (said.kind == Said::Kind::kFinished) {
          running.over = true;
          happened.push_back({TrialFinished{trial}});
        } else {
          running.over = true;
          happened.push_back({TrialFailed{trial, FailureKind::kUserError, said.text}});
        }
      }
    } catch (const Error& error) {
      happened.push_back({TrialFailed{trial, KindOf(error), error.what()}});
    }
  }

  static FailureKind KindOf(const Error& error) {
    if (error.code() == Code::kInfeasible) return FailureKind::kInfeasible;
    if (error.code() == Code::kTaskFailed) return FailureKind::kUserError;
    const std::string text = error.what();
    if (text.find("node") != std::string::npos && text.find("lost") != std::string::npos) return FailureKind::kNodeLost;
    return text.find(kKilled) != std::string::npos ? FailureKind::kWorkerLost : FailureKind::kUserError;
  }

  MakeHost make_;
  std::map<TrialNumber, Running> running_;
  std::deque<Host> idle_;  // reuse: processes without a trial
  std::vector<Happening> early_;
};

}  // namespace

std::unique_ptr<TrialExecutor> MakeActorExecutor(MakeHost make) {
  return std::make_unique<ActorExecutor>(std::move(make));
}

}  // namespace manta::tune::runtime
