// ChainMember is one copy of a shard: it stores records in order, passes them on to its successor, and is head or tail
// when the master says so. Pure: no clock, socket, thread or lock; messages, finished storage operations and the time
// go in, messages and storage operations come out. Only its driver's loop calls it.
//
// Invariants:
//   (1) A record is forwarded after it is stored here, and taken only from the predecessor, in the same epoch, after
//       all that come before it. So the stored records of a member are always the beginning of its predecessor's, also
//       after both lost whatever was not yet on their disks.
//   (2) A write is answered when the tail has stored it and the master has told that tail, in this epoch, that no other
//       one can act any more (a grant).
//   (3) A read is answered only by a member whose lease is good after the storage was read.
//   (4) Everything ends with the epoch: lease, grant, what the successor has. The successor says anew where it is.
//
// A joiner follows its predecessor like all, but nobody waits for it. A log that is not the beginning of the feeder's
// (last position under another epoch) is thrown away first. When the joiner becomes the tail it acts only after it has
// what its predecessor had when *that* one took the configuration and ceased to be the tail.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rules/chain.h"
#include "rules/chain_sessions.h"

namespace manta::rules {

class ChainMember {
 public:
  static constexpr std::size_t kMaxHeld = 4096;  // reads

  ChainMember(MemberId id, std::uint64_t incarnation, const ChainTimes& times, const ChainFaults& faults = {});

  // What is in the storage, before anything else. An epoch of 0: not known.
  void Restore(std::uint64_t position, std::uint64_t last_epoch);
  void Restore(const Id& client, std::uint64_t client_sequence, std::uint64_t position);
  void Forget(const Id& client) { sessions_.Forget(client); }

  void Receive(std::int64_t now_us, const ChainMessage& message, ChainActions* actions);
  // All up to this position are durable.
  void Stored(std::int64_t now_us, std::uint64_t generation, std::uint64_t position, ChainActions* actions);
  // Answers ChainFetch{after}: `found` is false if the storage does not know any more what came after it.
  void Fetched(std::int64_t now_us, std::uint64_t after, bool found, std::vector<ChainRecord> records,
               ChainActions* actions);
  void ReadDone(std::int64_t now_us, std::uint64_t token, std::string value, ChainActions* actions);
  // A new link to this neighbour: what was said over the one before may be lost.
  void Connected(std::int64_t now_us, MemberId peer, ChainActions* actions);
  // A new link to the master: says at once where it is.
  void Speak(std::int64_t now_us, ChainActions* actions) { Renew(now_us, actions); }
  // The link to the master is closed: it may take us for dead at once, so the lease ends here.
  void Forsaken() { lease_until_us_ = 0; }
  // Every renew_us or more often.
  void Tick(std::int64_t now_us, ChainActions* actions);

  [[nodiscard]] MemberId id() const { return id_; }
  [[nodiscard]] const ChainConfig& config() const { return config_; }
  [[nodiscard]] std::uint64_t appended() const { return appended_; }
  [[nodiscard]] std::uint64_t stored() const { return stored_; }
  [[nodiscard]] std::uint64_t committed() const { return committed_; }
  [[nodiscard]] bool is_head() const { return config_.head() == id_; }
  [[nodiscard]] bool is_tail() const { return config_.tail() == id_; }
  [[nodiscard]] bool acting_tail() const { return is_tail() && granted_ && synced(); }
  [[nodiscard]] bool MayRead(std::int64_t now_us) const;

 private:
  struct Reading {
    Id client;
    std::uint64_t number = 0;
  };

  void On(std::int64_t now_us, const ChainConfigure& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainGrant& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainResume& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainRefill& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainEntries& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainAcked& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainWrite& message, ChainActions* actions);
  void On(std::int64_t now_us, const ChainRead& message, ChainActions* actions);
  template <typename Other>
  void On(std::int64_t, const Other&, ChainActions*) {}  // not for members

  [[nodiscard]] bool synced() const {
    return !joining_ || faults_.serve_before_filled || (sync_known_ && stored_ >= sync_position_);
  }
  // What may be passed on and acknowledged.
  [[nodiscard]] std::uint64_t solid() const { return faults_.forward_before_stored ? appended_ : stored_; }
  void Append(ChainRecord record, ChainActions* actions);
  void Answer(std::int64_t now_us, const ChainRead& read, ChainActions* actions);
  void Refuse(const ChainRead& read, ChainActions* actions) const;
  void Commit(std::int64_t now_us, ChainActions* actions);
  void Acknowledge(ChainActions* actions);
  void Feed(std::int64_t now_us, ChainActions* actions);
  void Landed(std::uint64_t position);
  void SendEntries(std::uint64_t previous, std::vector<ChainRecord> records, ChainActions* actions);
  void Take(std::int64_t now_us, const ChainResume& message, ChainActions* actions);
  void Begin(std::int64_t now_us, std::uint64_t position, ChainActions* actions);
  void AskPredecessor(std::int64_t now_us, ChainActions* actions);
  void Renew(std::int64_t now_us, ChainActions* actions);
  void Trim();

  const MemberId id_;
  const std::uint64_t incarnation_;
  const ChainTimes times_;
  const ChainFaults faults_;

  ChainConfig config_;
  MemberId predecessor_ = kNoMember;
  MemberId successor_ = kNoMember;  // also a joiner
  bool feeding_joiner_ = false;     // the successor is not of the chain yet

  std::uint64_t generation_ = 1;
  std::uint64_t appended_ = 0;  // given to the storage
  std::uint64_t appended_epoch_ = 0;
  std::uint64_t stored_ = 0;
  std::uint64_t committed_ = 0;
  std::deque<ChainRecord> recent_;  // all after recent_base_
  std::uint64_t recent_base_ = 0;
  std::uint64_t recent_bytes_ = 0;
  ChainSessions sessions_;
  std::map<std::uint64_t, std::pair<Id, std::uint64_t>> asked_again_;  // writes, by position
  std::optional<ChainResume> early_;                                   // of an epoch that we have not been told of yet

  // Of this epoch.
  bool granted_ = false;
  std::int64_t lease_until_us_ = 0;
  bool joining_ = false;  // the joiner of this configuration
  bool sync_known_ = false;
  std::uint64_t sync_position_ = 0;
  bool heard_predecessor_ = false;
  std::int64_t asked_us_ = 0;         // the predecessor, last
  bool resumed_ = false;              // the successor has said where it is
  std::uint64_t checking_ = 0;        // a joiner's last position, which must be in our log under …
  std::uint64_t checking_epoch_ = 0;  // … this epoch
  std::uint64_t sent_ = 0;
  std::uint64_t successor_stored_ = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> flying_;  // sent, not stored there: last position, bytes
  std::uint64_t flying_bytes_ = 0;
  std::int64_t progress_us_ = 0;  // of the successor
  std::int64_t resent_us_ = 0;
  bool fetching_ = false;
  bool lost_ = false;
  bool cannot_feed_ = false;  // the storage does not reach back to where the successor is

  std::int64_t renewed_us_ = 0;
  std::uint64_t next_token_ = 1;
  std::unordered_map<std::uint64_t, Reading> readings_;
  std::vector<ChainRead> held_;  // reads that came to a tail between two leases
};

}  // namespace manta::rules
