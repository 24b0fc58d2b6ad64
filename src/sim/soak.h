// Soak looks for seeds with which a simulated chain (sim/chain_run.h) or a simulated recovery (sim/recovery_run.h) goes
// wrong, for as long as it is let.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "sim/chain_run.h"
#include "sim/recovery_run.h"

namespace manta::sim {

// What a seed stands for: two to four members, every other one with a standby for the master.
[[nodiscard]] ChainModel SoakModel(std::uint64_t seed);

template <typename Figures>
struct SoakFigures {
  std::uint64_t seeds = 0;
  Figures all;
  std::optional<std::uint64_t> failed;  // the first seed that went wrong; its violations are those of `all`
  bool replays = true;                  // and whether it did so a second time, event for event
};

// Seeds from `first` on, until one fails or `go_on`, which is asked after each, says no.
[[nodiscard]] SoakFigures<ChainFigures> SoakChain(std::uint64_t first, const rules::ChainFaults& faults,
                                                  const std::function<bool()>& go_on);
[[nodiscard]] SoakFigures<RecoveryFigures> SoakRecovery(std::uint64_t first, const RecoveryFaults& faults,
                                                        const std::function<bool()>& go_on);

}  // namespace manta::sim
