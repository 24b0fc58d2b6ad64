// Chain replication of one shard: what members, their master and clients say to each other, and what they ask of those
// who drive them. Plain values; the decisions are in chain_member.h, chain_master.h and chain_client.h.
//
// Writes enter at the head, are stored and forwarded member by member, and are answered by the tail, which also
// answers reads. doc/replication.md says why this keeps every acknowledged write.
//
// Epochs: every change of the configuration has the next number. (epoch, position) names one record for good: an epoch
// has one head, which gives each position once, and forwards only what is on its disk.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "types/id.h"

namespace manta::rules {

using MemberId = std::uint32_t;
inline constexpr MemberId kNoMember = 0;

// Records of a copy of the tables, which do not know their epoch any more; chains start above it.
inline constexpr std::uint64_t kCopiedEpoch = 1;

struct ChainRecord {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // from 1; in a copy, positions whose writes were overwritten are missing
  Id client;
  std::uint64_t client_sequence = 0;
  std::string payload;  // the chain does not look into it
};

struct ChainConfig {
  std::uint64_t epoch = 0;
  std::vector<MemberId> members;  // the head first; each of them has every acknowledged write
  MemberId joiner = kNoMember;    // is being filled by the last member
  bool switching = false;         // the joiner is the tail already, but may still lack acknowledged writes

  friend bool operator==(const ChainConfig&, const ChainConfig&) = default;
  [[nodiscard]] MemberId head() const { return members.empty() ? kNoMember : members.front(); }
  [[nodiscard]] MemberId tail() const {
    if (switching) return joiner;
    return members.empty() ? kNoMember : members.back();
  }
};

struct ChainTimes {
  std::int64_t renew_us = 5'000;        // members speak to the master this often
  std::int64_t lease_us = 20'000;       // a tail may answer reads for so long after it asked
  std::int64_t drift_us = 2'000;        // clocks of tail and master differ by less, over a lease
  std::int64_t silent_us = 1'000'000;   // a member that was not heard for so long is put out
  std::int64_t resend_us = 200'000;     // what has no answer for so long is sent again
  std::int64_t stall_us = 1'000'000;    // a successor that takes nothing for so long is complained about
  std::int64_t away_us = 1'000'000;     // one that was complained about does not join again before
  std::uint64_t window_records = 1024;  // forwarded and not yet stored by the successor
  std::uint64_t batch_records = 256;    // of one message
  std::uint64_t keep_records = 1024;    // kept in memory after they are acknowledged by the tail
  std::uint64_t window_bytes = 16U << 20;
  std::uint64_t batch_bytes = 1U << 20;
  std::uint64_t keep_bytes = 16U << 20;
  std::uint64_t near_records = 64;     // a joiner that lacks so few becomes the tail
  std::uint64_t client_window = 1024;  // writes of one client that may be unanswered
};

// Mistakes that tests plant to see that they are found. All false in the product.
struct ChainFaults {
  bool read_without_lease = false;      // tail: answers reads whenever it believes to be the tail
  bool lease_from_receipt = false;      // tail: counts the lease from when the grant arrived
  bool read_not_rechecked = false;      // tail: looks at the lease before the read of the storage only
  bool act_before_grant = false;        // a new tail answers writes before the lease of the old one is over
  bool forward_before_stored = false;   // forwards and acknowledges what is not on the disk yet
  bool answer_at_head = false;          // head: answers a write when it has stored it
  bool apply_retries = false;           // head: does not look whether it has the write already
  bool forget_on_follow = false;        // followers do not remember clients' writes
  bool accept_old_epochs = false;       // takes records of any predecessor and epoch
  bool accept_gaps = false;             // takes records that do not follow its last
  bool trust_joiner = false;            // feeds a joiner from its position, without looking whether it is the same log
  bool serve_before_filled = false;     // a joiner that became the tail does not wait for the last of its predecessor
  bool grant_at_once = false;           // master: does not wait for the old tail's lease
  bool switch_before_filled = false;    // master: makes a joiner a full member as soon as it appears
  bool tell_before_saved = false;       // master: tells a configuration that is not on its disk yet
  bool retry_under_new_number = false;  // client: a write that is sent again gets another number
  bool keep_lease_over_epochs = false;  // a former tail goes on under its lease after it was told
  bool grant_without_seat = false;      // master: grants though another one may have taken over
  bool save_without_compare = false;    // where the configuration is: takes what a former master saves
  bool take_held_seat = false;          // where the seat is: gives it away before the term of the last one is over
};

// ---- messages ----

// Member to master, every renew_us and when something changed: I live, and this is where I am.
struct ChainRenew {
  MemberId member = kNoMember;
  std::uint64_t incarnation = 0;  // grows with every start of this member
  std::uint64_t epoch = 0;        // of the configuration it follows; 0: none yet
  std::int64_t sent_us = 0;       // by its own clock
  std::uint64_t position = 0;     // stored
  bool synced = false;            // has all that its predecessor had when it took this configuration
  bool lost = false;              // lacks what its successor has: its storage lost something
  MemberId stalled = kNoMember;   // a successor that takes nothing
};
// Master to all members, also those who are out, and to clients (incarnation 0).
struct ChainConfigure {
  ChainConfig config;
  std::uint64_t incarnation = 0;  // to whom it is told; another life of the same member ignores it
};
// Master to the tail: it may answer reads until sent_us + lease_us by its own clock.
struct ChainGrant {
  std::uint64_t epoch = 0;
  std::int64_t sent_us = 0;  // of the ChainRenew
};
// Member to its predecessor: send what comes after my last record.
struct ChainResume {
  std::uint64_t epoch = 0;
  MemberId from = kNoMember;
  std::uint64_t position = 0;
  std::uint64_t last_epoch = 0;  // of that record
};
// To a joiner: what you have is not the beginning of the log. Throw it away.
struct ChainRefill {
  std::uint64_t epoch = 0;
  MemberId from = kNoMember;
  std::uint64_t position = 0;  // that was offered
};
struct ChainEntries {
  std::uint64_t epoch = 0;
  MemberId from = kNoMember;
  std::uint64_t previous = 0;  // position of the record before the first
  std::vector<ChainRecord> records;
  std::uint64_t last = 0;  // that the sender has stored
};
// Member to its predecessor.
struct ChainAcked {
  std::uint64_t epoch = 0;
  MemberId from = kNoMember;
  std::uint64_t position = 0;   // stored by the sender
  std::uint64_t committed = 0;  // stored by all
};
// Client to head.
struct ChainWrite {
  Id client;
  std::uint64_t sequence = 0;
  std::string payload;
};
struct ChainWritten {
  Id client;
  std::uint64_t sequence = 0;
  std::uint64_t position = 0;
};
// Client to tail.
struct ChainRead {
  Id client;
  std::uint64_t number = 0;
  std::string what;
};
struct ChainValue {
  Id client;
  std::uint64_t number = 0;
  std::string value;
};
// Not here, or not now.
struct ChainRedirect {
  Id client;
  std::uint64_t number = 0;  // of a read, or the sequence of a write
  bool write = false;
  std::uint64_t epoch = 0;  // that the refusing member follows
};
// Client to master, answered by ChainConfigure.
struct ChainAsk {
  Id client;
};

using ChainMessage = std::variant<ChainRenew, ChainConfigure, ChainGrant, ChainResume, ChainRefill, ChainEntries,
                                  ChainAcked, ChainWrite, ChainWritten, ChainRead, ChainValue, ChainRedirect, ChainAsk>;

// ---- actions ----

struct ChainPeer {
  enum class Kind : std::uint8_t { kMaster, kMember, kClient };
  Kind kind = Kind::kMaster;
  MemberId member = kNoMember;
  Id client;
};
[[nodiscard]] inline ChainPeer ToMaster() { return {}; }
[[nodiscard]] inline ChainPeer ToMember(MemberId member) { return {ChainPeer::Kind::kMember, member, {}}; }
[[nodiscard]] inline ChainPeer ToClient(const Id& client) { return {ChainPeer::Kind::kClient, kNoMember, client}; }

struct ChainSend {
  ChainPeer to;
  ChainMessage message;
};
// Make durable, in the order given; then ChainMember::Stored.
struct ChainStore {
  std::uint64_t generation = 0;
  ChainRecord record;
};
// Throw away all that is stored: what follows is of this generation.
struct ChainWipe {
  std::uint64_t generation = 0;
};
// Read stored records after this position, oldest first (after 0 perhaps from a copy of the tables); then
// ChainMember::Fetched.
struct ChainFetch {
  std::uint64_t after = 0;
  std::uint64_t limit = 0;  // records
};
// Read from the tables as they are stored; then ChainMember::ReadDone.
struct ChainLookup {
  std::uint64_t token = 0;
  std::string what;
};
using ChainAction = std::variant<ChainSend, ChainStore, ChainWipe, ChainFetch, ChainLookup>;
using ChainActions = std::vector<ChainAction>;

}  // namespace manta::rules
