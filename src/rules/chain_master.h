// ChainMaster decides who is in a chain: it puts out the dead, lets others join one at a time, gives every change the
// next epoch, and lends the tail the right to answer reads. Pure: no clock, socket, thread or lock; its driver keeps
// the configuration where it outlives this process, and carries out the actions.
//
// Invariants:
//   (1) A configuration is told to somebody only after it is saved; of one epoch there is one.
//   (2) Whoever is in `members` has every acknowledged write. The last of them is never put out, dead or not: then the
//       chain waits for it. A joiner becomes one of them when it has said that it lacks nothing; and the first one,
//       which the very first configuration names, is waited for before anything is changed.
//   (3) A lease is granted to the tail of the saved configuration only when no other member's lease can be good: it is
//       over by our clock, or the member follows this configuration, or is known to be dead.
//   (4) Nobody is put out because we did not look: after a start everybody has silent_us to speak, and time in which we
//       did not run (a stalled process) does not count against members.
//   (5) With more than one process that may be the master, one has the seat, for a time, and saves by compare and swap.
//       It grants only while it surely has the seat (Hold), and the next one waits for what it may have granted.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "rules/chain.h"

namespace manta::rules {

// Make durable; then ChainMaster::Saved.
struct ChainSave {
  ChainConfig config;
};
// To every client.
struct ChainPublish {
  ChainConfig config;
};
using ChainMasterAction = std::variant<ChainSave, ChainPublish, ChainSend>;
using ChainMasterActions = std::vector<ChainMasterAction>;

class ChainMaster {
 public:
  // `config` is what was saved last; at the very first, its epoch is kCopiedEpoch, and it names one member.
  ChainMaster(std::int64_t now_us, ChainConfig config, const ChainTimes& times, const ChainFaults& faults = {});

  void Receive(std::int64_t now_us, const ChainMessage& message, ChainMasterActions* actions);
  // The link to this life of a member broke. `certain`: by the end of its process, so that it serves nobody any more.
  void Gone(std::int64_t now_us, MemberId member, std::uint64_t incarnation, bool certain, ChainMasterActions* actions);
  void Saved(std::int64_t now_us, std::uint64_t epoch, ChainMasterActions* actions);
  void Tick(std::int64_t now_us, ChainMasterActions* actions);
  // Before then nobody else can be the master. Not called: never.
  void Hold(std::int64_t until_us) { hold_until_us_ = until_us; }

  [[nodiscard]] const ChainConfig& config() const { return config_; }
  [[nodiscard]] bool saving() const { return next_.has_value(); }
  // A member follows a later configuration than the one we have: ours is an old copy.
  [[nodiscard]] bool outdated() const { return outdated_; }

 private:
  struct Fact {
    std::uint64_t incarnation = 0;  // 0: not heard since our start
    std::uint64_t placed = 0;       // the incarnation that the present configuration counts on
    bool alive = false;
    std::int64_t heard_us = 0;
    std::int64_t sent_us = 0;
    std::uint64_t epoch = 0;
    std::uint64_t position = 0;
    bool synced = false;
    bool lost = false;
    std::int64_t away_until_us = 0;
    std::int64_t lease_until_us = 0;
  };

  void Renewed(std::int64_t now_us, const ChainRenew& renew, ChainMasterActions* actions);
  [[nodiscard]] bool Alive(std::int64_t now_us, MemberId member) const;
  [[nodiscard]] bool MayGrant(std::int64_t now_us) const;
  void Grant(std::int64_t now_us, ChainMasterActions* actions);
  void Decide(std::int64_t now_us, ChainMasterActions* actions);
  void Tell(ChainMasterActions* actions);

  const ChainTimes times_;
  const ChainFaults faults_;
  const std::int64_t started_us_;
  ChainConfig config_;
  std::optional<ChainConfig> next_;  // being saved
  std::map<MemberId, Fact> facts_;
  std::uint64_t granted_epoch_ = 0;  // the last one whose tail has a lease
  std::int64_t joiner_us_ = 0;       // when the joiner last got on
  std::uint64_t joiner_position_ = 0;
  bool outdated_ = false;
  std::int64_t ticked_us_ = 0;  // last
  std::int64_t hold_until_us_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace manta::rules
