// A replicated shard in virtual time: the real ChainMembers, ChainMaster and ChainClients of src/rules, over a model of
// the network, the disks and the clocks, with seeded crashes, restarts, partitions, delays, lost, doubled and overtaken
// messages. After a while the faults end, everything must come to rest, and what clients saw is checked.
//
// Checked: one order explains what clients saw (sim/history.h); a write is applied once; every acknowledged write is
// there, in every member; of an epoch there is one configuration, and one tail acts; nobody answers a read after a
// later tail has acted; members end with the same tables; nothing is stuck.
//
// The same model gives the same events: nothing depends on addresses, hashes or the real time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/chain.h"

namespace manta::sim {

struct ChainModel {
  std::uint64_t seed = 1;
  std::uint32_t members = 3;
  std::uint32_t clients = 3;
  std::uint32_t keys = 3;
  std::int64_t trouble_us = 250'000;  // how long clients work and faults happen
  std::int64_t rest_us = 2'000'000;   // how long it may take until everything is answered and filled
  double fault_us = 12'000;           // one in this time, in the mean; 0: none
  double crash_all = 0.05;            // this part of the faults: the power of all machines fails
  double loss = 0.01;                 // of messages
  double doubled = 0.02;
  double slow = 0.02;        // messages and disks that take fifty times as long
  double clock_skew = 0.04;  // clocks run faster or slower by up to this part
  bool standby = false;      // two masters, one of which has the seat (sim/chain_seat.h); else one, with a disk
  rules::ChainFaults faults;
};

struct ChainFigures {
  std::vector<std::string> violations;
  std::uint64_t trace = 0;  // a hash of every event
  std::uint64_t events = 0;
  std::uint64_t writes = 0;  // answered
  std::uint64_t reads = 0;
  std::uint64_t unknown = 0;
  std::uint64_t epochs = 0;
  std::uint64_t crashes = 0;
  std::uint64_t master_crashes = 0;
  std::uint64_t openings = 0;  // with a standby: how often the seat changed
  std::uint64_t partitions = 0;
  std::uint64_t refills = 0;
  std::uint64_t copied = 0;  // records of copies of the tables
  double seconds = 0;        // virtual

  void Add(const ChainFigures& other);
  [[nodiscard]] std::string Describe() const;
};

[[nodiscard]] ChainFigures RunChain(const ChainModel& model);

// Short times, so that much happens in little virtual time.
[[nodiscard]] rules::ChainTimes SimulatedTimes();

}  // namespace manta::sim
