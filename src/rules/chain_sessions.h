// ChainSessions remembers which position the last writes of every client got, so that a write that is sent again is
// found and not applied again. A client has at most `window` writes unanswered, numbered upward; what is further back
// than that was answered, and whatever comes under such a number is an old copy.
//
// Pure bookkeeping. Every member keeps it, since each may become the head.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "types/id.h"

namespace manta::rules {

class ChainSessions {
 public:
  static constexpr std::uint64_t kTooOld = ~std::uint64_t{0};

  explicit ChainSessions(std::uint64_t window) : window_(window) {}

  // 0: not known; kTooOld: cannot be known.
  [[nodiscard]] std::uint64_t Find(const Id& client, std::uint64_t sequence) const {
    const auto it = clients_.find(client);
    if (it == clients_.end()) return 0;
    const Session& session = it->second;
    if (sequence + window_ <= session.highest) return kTooOld;
    const std::size_t slot = sequence % window_;
    return slot < session.stamps.size() && session.stamps[slot].sequence == sequence ? session.stamps[slot].position
                                                                                     : 0;
  }
  void Add(const Id& client, std::uint64_t sequence, std::uint64_t position) {
    if (client.empty()) return;
    Session& session = clients_[client];
    if (sequence > session.highest) session.highest = sequence;
    const std::size_t slot = sequence % window_;
    if (session.stamps.size() <= slot) session.stamps.resize(slot + 1);
    if (session.stamps[slot].sequence <= sequence) session.stamps[slot] = {sequence, position};
  }
  void Forget(const Id& client) { clients_.erase(client); }
  void Clear() { clients_.clear(); }
  [[nodiscard]] std::size_t clients() const { return clients_.size(); }

 private:
  struct Stamp {
    std::uint64_t sequence = 0;
    std::uint64_t position = 0;
  };
  struct Session {
    std::uint64_t highest = 0;
    std::vector<Stamp> stamps;  // by sequence % window
  };
  std::uint64_t window_;
  std::unordered_map<Id, Session> clients_;
};

}  // namespace manta::rules
