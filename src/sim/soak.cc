#include "sim/soak.h"

namespace manta::sim {

ChainModel SoakModel(std::uint64_t seed) {
  ChainModel model;
  model.seed = seed;
  model.members = 2 + static_cast<std::uint32_t>(seed / 2 % 3);
  model.standby = seed % 2 == 1;
  return model;
}

namespace {

template <typename Figures, typename Model>
SoakFigures<Figures> Soak(std::uint64_t first, const std::function<Model(std::uint64_t)>& model_of,
                          Figures (*run)(const Model&), const std::function<bool()>& go_on) {
  SoakFigures<Figures> soak;
  do {
    const Model model = model_of(first + soak.seeds);
    const Figures figures = run(model);
    soak.all.Add(figures);
    ++soak.seeds;
    if (figures.violations.empty()) continue;
    soak.failed = model.seed;
    const Figures again = run(model);
    soak.replays = again.trace == figures.trace && again.violations == figures.violations;
    break;
  } while (go_on());
  return soak;
}

}  // namespace

SoakFigures<ChainFigures> SoakChain(std::uint64_t first, const rules::ChainFaults& faults,
                                    const std::function<bool()>& go_on) {
  const auto model_of = [&](std::uint64_t seed) {
    ChainModel model = SoakModel(seed);
    model.faults = faults;
    return model;
  };
  return Soak<ChainFigures, ChainModel>(first, model_of, RunChain, go_on);
}

SoakFigures<RecoveryFigures> SoakRecovery(std::uint64_t first, const RecoveryFaults& faults,
                                          const std::function<bool()>& go_on) {
  const auto model_of = [&](std::uint64_t seed) {
    RecoveryModel model = RecoveryModelOf(seed);
    model.faults = faults;
    return model;
  };
  return Soak<RecoveryFigures, RecoveryModel>(first, model_of, RunRecovery, go_on);
}

}  // namespace manta::sim
