// A broadcast in virtual time: rules::Broadcast plans, and each node's link sends chunks to those it feeds, in turn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rules/broadcast.h"
#include "sim/model.h"

namespace manta::sim {

struct BroadcastModel {
  std::uint64_t seed = 1;
  std::uint32_t receivers = 50;
  std::uint64_t bytes = 1'000'000'000;
  std::uint64_t chunk = 1'000'000;
  Network network;
  rules::Broadcast::Options options;
  double apart_us = 0;       // requests come this far apart, in the mean
  std::uint32_t deaths = 0;  // receivers that die on the way, at random moments
};

struct BroadcastFigures {
  double seconds = 0;       // until the last living receiver has it
  double mean_seconds = 0;  // of a receiver
  double one_seconds = 0;   // a single transfer over a link of its own
  std::uint64_t source_copies = 0;
  std::uint64_t transfers = 0;
  std::size_t depth = 0;  // the deepest receiver
  std::uint32_t served = 0;
  std::uint64_t trace = 0;
};

[[nodiscard]] BroadcastFigures RunBroadcast(const BroadcastModel& model);

}  // namespace manta::sim
