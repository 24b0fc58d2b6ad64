// Searches for the learning rate of a small model: 16 trials, each in a process of its own; ASHA stops the bad ones.
#include <manta/tune.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace tune = manta::tune;

struct Model {  // minimises (w - 3)^2 by gradient descent
  double w = 0;
  int step = 0;
  double Fit(double rate) {
    w -= rate * 2 * (w - 3);
    ++step;
    return (w - 3) * (w - 3);
  }
  std::string Save(const std::string& folder) const {
    std::ofstream(folder + "/model") << w << " " << step;
    return folder;
  }
  void Load(const std::string& folder) { std::ifstream(folder + "/model") >> w >> step; }
};

void Train(tune::Trial& trial) {
  const auto rate = trial.Get<double>("rate");
  Model model;
  if (trial.Restored()) model.Load(trial.CheckpointFolder());
  while (model.step < 27) {
    const double loss = model.Fit(rate);
    trial.Report({{"loss", loss}}, trial.Every(9) ? model.Save(trial.NewFolder()) : tune::kNoCheckpoint);
  }
}

int main() {
  const std::filesystem::path storage = std::filesystem::temp_directory_path() / "manta_tune_example";
  const tune::Results all = tune::Tuner(Train)
                                .Space({{"rate", tune::LogUniform(1e-4, 1)}})
                                .Minimize("loss")
                                .Search(tune::Tpe{.seed = 7})
                                .Schedule(tune::Asha{.max_t = 27, .reduction_factor = 3})
                                .Samples(16)
                                .StorageFolder(storage.string())
                                .Verbose(0)
                                .Run();
  std::printf("%zu trials, best: %s\n", all.size(), all.Best().Describe().c_str());
  std::filesystem::remove_all(storage);
}
