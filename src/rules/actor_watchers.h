// ActorWatchers are the processes of a node that are told what becomes of an actor. Those that have attached, to call
// it, are told of each of its restarts, and then attach again: with a queue that they have made anew, in which the
// calls to be repeated come first. Pure.
//
// Why restarts are counted: the word of a restart and an attachment may pass each other, because a caller on another
// node than the actor attaches also when its connection breaks. Taken for the answer to that word, it would let the
// next process of the actor serve a queue that its owner is about to make anew, and both would then wait for ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "types/id.h"

namespace manta::rules {

class ActorWatchers {
 public:
  void Add(ProcessId process) { told_.try_emplace(process); }
  void Remove(ProcessId process) { told_.erase(process); }

  // It has heard of so many restarts since it first attached, anywhere. False: there is one that it has yet to hear of,
  // and then it attaches again; this attachment is void.
  [[nodiscard]] bool Attach(ProcessId process, std::uint32_t restarts) {
    std::optional<std::uint32_t>& told = told_[process];
    if (!told.has_value()) told = restarts;
    return *told == restarts;
  }
  // Who is to be told of a restart.
  [[nodiscard]] std::vector<ProcessId> Restarted() {
    std::vector<ProcessId> out;
    for (auto& [process, told] : told_) {
      if (!told.has_value()) continue;
      ++*told;
      out.push_back(process);
    }
    return out;
  }
  // Who is to be told of anything else.
  [[nodiscard]] std::vector<ProcessId> All() const {
    std::vector<ProcessId> out;
    out.reserve(told_.size());
    for (const auto& [process, told] : told_) out.push_back(process);
    return out;
  }
  [[nodiscard]] bool empty() const { return told_.empty(); }

 private:
  std::map<ProcessId, std::optional<std::uint32_t>> told_;  // restarts; none: it has not attached
};

}  // namespace manta::rules
