#include "sim/soak.h"

namespace manta::sim {

ChainModel SoakModel(std::uint64_t seed) {
  ChainModel model;
  model.seed = seed;
  model.members = 2 + static_cast<std::uint32_t>(seed / 2 % 3);
  model.standby = seed % 2 == 1;
  return model;
}

SoakFigures Soak(std::uint64_t first, const rules::ChainFaults& faults, const std::function<bool()>& go_on) {
  SoakFigures soak;
  do {
    ChainModel model = SoakModel(first + soak.seeds);
    model.faults = faults;
    const ChainFigures figures = RunChain(model);
    soak.all.Add(figures);
    ++soak.seeds;
    if (figures.violations.empty()) continue;
    soak.failed = model.seed;
    const ChainFigures again = RunChain(model);
    soak.replays = again.trace == figures.trace && again.violations == figures.violations;
    break;
  } while (go_on());
  return soak;
}

}  // namespace manta::sim
