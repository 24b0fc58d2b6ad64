#include "faults.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <utility>

#include "harness.h"
#include "processes.h"

namespace chaos {
namespace {

constexpr std::size_t kMostNodes = 6;

bool Lives(pid_t pid) { return bench::ParentOf(pid) != 0; }

}  // namespace

Faults::Faults(std::uint64_t seed, bench::Nodes& nodes, std::size_t driver, Heads* heads, bench::Board& board,
               Load& load)
    : random_(seed),
      nodes_(nodes),
      board_(board),
      load_(load),
      heads_(heads),
      driver_(driver),
      driver_node_(nodes.pid(driver)),
      head_(heads != nullptr ? heads->pid() : nodes.head_pid()),
      actors_(load.ActorPids()),
      excused_(actors_.size()) {
  for (std::size_t i = 1; i <= nodes.count(); ++i) {
    if (i != driver) living_.push_back(i);
  }
}

void Faults::One() {
  int sum = 0;
  for (const Fault& fault : faults_) sum += fault.weight;
  int at = static_cast<int>(random_() % static_cast<std::uint64_t>(sum));
  std::size_t which = 0;
  while (at >= faults_[which].weight) at -= faults_[which++].weight;
  bool hit = false;
  const double begin = bench::Now();
  switch (which) {
    case 0:
      hit = KillOne(Workers());
      break;
    case 1:
      hit = KillOne(LookAtActors());
      break;
    case 2:
      hit = KillForkServer();
      break;
    case 3:
      hit = KillNode(Any(), false);
      break;
    case 4:
      hit = KillNode(Any(), true);
      break;
    case 5:
      hit = SilenceNode();
      break;
    case 6:
      hit = AddNode();
      break;
    case 7:
      hit = RestartHead();
      break;
    case 8:
      hit = Stop(Choose(Workers()), 300, false);
      break;
    case 9:
      hit = Stop(nodes_.pid(living_[Any()]), 700, true);
      break;
    case 10:
      hit = KillNode(Home(), true);
      break;
    case 11:
      hit = DrainNode(random_() % 2 == 0 ? Home() : Any());
      break;
    default:
      hit = SilenceHead();
      break;
  }
  if (verbose_) {
    std::printf("%8.2f s %s, %s, took %.2f s\n", begin - begin_, faults_[which].name, hit ? "hit" : "hit nobody",
                bench::Now() - begin);
  }
  ++faults_[which].done;
  faults_[which].hit += hit ? 1 : 0;
}

// Children of fork servers, which are children of nodes.
std::vector<pid_t> Faults::WorkersOf(std::size_t node) const {
  std::vector<pid_t> found;
  for (const pid_t server : bench::ChildrenOf(nodes_.pid(node))) {
    const std::vector<pid_t> workers = bench::ChildrenOf(server);
    found.insert(found.end(), workers.begin(), workers.end());
  }
  return found;
}

std::vector<pid_t> Faults::Workers() const {
  std::vector<pid_t> found = WorkersOf(driver_);
  for (const std::size_t node : living_) {
    const std::vector<pid_t> workers = WorkersOf(node);
    found.insert(found.end(), workers.begin(), workers.end());
  }
  return found;
}

bool Faults::Gone(const std::vector<pid_t>& pids, double seconds) const {
  const double end = bench::Now() + seconds;
  while (std::any_of(pids.begin(), pids.end(), Lives)) {
    if (bench::Now() > end) return false;
    bench::SleepMs(0.2);
  }
  return true;
}

// Waits a little for somebody to be in the middle of something.
bool Faults::AwaitBusy(const std::vector<pid_t>& pids) {
  for (const double end = bench::Now() + 0.3; bench::Now() < end; bench::SleepMs(0.2)) {
    if (std::any_of(pids.begin(), pids.end(), [&](pid_t pid) { return board_.Busy(pid) > 0; })) return true;
  }
  return false;
}

bool Faults::Kill(const std::vector<pid_t>& victims) {
  bool hit = false;
  for (const pid_t pid : victims) ::kill(pid, SIGKILL);
  static_cast<void>(Gone(victims, 10));
  for (const pid_t pid : victims) {
    killed_.insert(pid);
    hit |= board_.Busy(pid) > 0;
  }
  return hit;
}

// Somebody in the middle of something, if there is one.
pid_t Faults::Choose(const std::vector<pid_t>& candidates) {
  static_cast<void>(AwaitBusy(candidates));
  std::vector<pid_t> busy;
  std::vector<pid_t> all;
  for (const pid_t pid : candidates) {
    if (pid == 0 || !Lives(pid)) continue;
    all.push_back(pid);
    if (board_.Busy(pid) > 0) busy.push_back(pid);
  }
  if (!busy.empty()) all = busy;
  return all.empty() ? 0 : all[random_() % all.size()];
}

bool Faults::KillOne(const std::vector<pid_t>& candidates) {
  // Who was busy a moment ago may not be any more: it is stopped, to be looked at again.
  for (const double end = bench::Now() + 1;;) {
    const pid_t pid = Choose(candidates);
    if (pid == 0) return false;
    ::kill(pid, SIGSTOP);
    bench::SleepMs(0.2);
    if (board_.Busy(pid) > 0 || bench::Now() > end) return Kill({pid});
    ::kill(pid, SIGCONT);
  }
}

bool Faults::KillForkServer() {
  const std::vector<pid_t> workers = Workers();
  if (workers.empty()) return false;
  const pid_t server = bench::ParentOf(workers[random_() % workers.size()]);
  if (server <= 1) return false;
  // Whether its workers end with it is the daemon's business: none of them is a survivor any more.
  for (const pid_t pid : bench::ChildrenOf(server)) killed_.insert(pid);
  static_cast<void>(Kill({server}));
  return true;  // it is there only because workers are
}

void Faults::Replace(std::size_t at) {
  if (living_.size() + 1 >= kMostNodes) {
    living_.erase(living_.begin() + static_cast<std::ptrdiff_t>(at));
    return;
  }
  nodes_.Add();
  living_[at] = nodes_.count();
}

std::size_t Faults::Home() {
  const auto oldest = std::min_element(living_.begin(), living_.end());
  return *oldest < driver_ ? static_cast<std::size_t>(oldest - living_.begin()) : Any();
}

void Faults::HomeLost() {
  moved_ += Load::AllDetached();
  for (std::size_t i = 0; i < excused_.size(); ++i) excused_[i] += Load::Detached(i) ? 1 : 0;
}

bool Faults::KillNode(std::size_t at, bool workers_too) {
  const std::size_t node = living_[at];
  const std::vector<pid_t> workers = WorkersOf(node);
  killed_.insert(workers.begin(), workers.end());
  bool hit = AwaitBusy(workers);
  if (workers_too) {
    std::vector<pid_t> all = workers;
    all.insert(all.begin(), nodes_.pid(node));
    hit |= Kill(all);
  } else {
    static_cast<void>(Kill({nodes_.pid(node)}));
    if (!Gone(workers, 5)) said_.emplace_back("workers outlived their daemon by five seconds");
  }
  HomeLost();
  Replace(at);
  return hit;
}

bool Faults::DrainNode(std::size_t at) {
  const std::size_t node = living_[at];
  std::vector<pid_t> all = WorkersOf(node);
  killed_.insert(all.begin(), all.end());
  const bool hit = AwaitBusy(all);
  HomeLost();
  std::future<void> drained = std::async(std::launch::async, [&] { nodes_.Drain(node); });
  // Half of the time the head dies, and is started again, while the node leaves.
  bool restart = heads_ == nullptr && random_() % 2 == 0;
  // What comes there before it is told moves on, too.
  while (drained.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready) {
    for (const pid_t pid : WorkersOf(node)) {
      if (killed_.insert(pid).second) all.push_back(pid);
    }
    if (!std::exchange(restart, false)) continue;
    nodes_.RestartHead();
    head_ = nodes_.head_pid();
  }
  drained.get();
  all.push_back(nodes_.pid(node));
  if (!Gone(all, 10)) said_.emplace_back("a node that was drained did not end in ten seconds");
  Replace(at);
  return hit;
}

// Nothing comes from its daemon for so long that it is given up; what it may still do when it goes on counts for
// nothing, and it has to end by itself.
bool Faults::SilenceNode() {
  const std::size_t at = Any();
  const pid_t pid = nodes_.pid(living_[at]);
  const std::vector<pid_t> workers = WorkersOf(living_[at]);
  killed_.insert(workers.begin(), workers.end());
  const bool hit = AwaitBusy(workers);
  ::kill(pid, SIGSTOP);
  bench::SleepMs(5000);
  ::kill(pid, SIGCONT);
  std::vector<pid_t> all = workers;
  all.push_back(pid);
  if (!Gone(all, 10)) {
    said_.emplace_back("a node that was given up did not end in ten seconds");
    static_cast<void>(Kill(all));
  }
  HomeLost();
  Replace(at);
  return hit;
}

bool Faults::AddNode() {
  if (living_.size() + 1 >= kMostNodes) return KillNode(Any(), true);
  nodes_.Add();
  living_.push_back(nodes_.count());
  return true;  // whatever runs, runs on while the nodes change
}

bool Faults::RestartHead() {
  const bool hit = AwaitBusy(Workers());
  if (heads_ != nullptr) {
    heads_->Kill();
    head_ = heads_->pid();
    return hit;
  }
  nodes_.RestartHead();
  head_ = nodes_.head_pid();
  return hit;
}

// With another one that takes over nodes stand still until then; without, they would take themselves for cut off.
bool Faults::SilenceHead() {
  const bool hit = AwaitBusy(Workers());
  if (heads_ == nullptr) {
    static_cast<void>(Stop(head_, 1500, true));
    return hit;
  }
  if (!heads_->Silence()) said_.emplace_back("a head whose term was over did not end in ten seconds");
  head_ = heads_->pid();
  return hit;
}

bool Faults::Stop(pid_t pid, double ms, bool always_hit) {
  if (pid == 0) return false;
  ::kill(pid, SIGSTOP);
  const bool hit = always_hit || board_.Busy(pid) > 0;
  bench::SleepMs(ms);
  ::kill(pid, SIGCONT);
  return hit;
}

std::vector<int> Faults::LookAtActors() {
  std::vector<int> now = load_.ActorPids();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == 0) continue;
    const bool moved = actors_[i] != 0 && now[i] != actors_[i] && !killed_.contains(actors_[i]);
    if (moved && excused_[i] > 0) {
      --excused_[i];
    } else if (moved) {
      said_.push_back("counter " + std::to_string(i) + " moved from process " + std::to_string(actors_[i]) +
                      ", which nobody killed, to " + std::to_string(now[i]));
    }
    actors_[i] = now[i];
  }
  return now;
}

void Faults::CheckSurvivors() {
  static_cast<void>(LookAtActors());
  for (const std::size_t node : living_) {
    if (!Lives(nodes_.pid(node))) said_.push_back("node " + bench::Nodes::Name(node) + " ended, and nobody killed it");
  }
  if (!Lives(driver_node_)) said_.emplace_back("the driver's node ended, and nobody killed it");
  if (!Lives(head_)) said_.emplace_back("the head ended, and nobody killed it");
}

}  // namespace chaos
