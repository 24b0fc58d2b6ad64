// A tuning run that tests start, kill and start again: tuning FOLDER SAMPLES [resume]. It prints the best trial.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "manta/manta.h"
#include "manta/tune.h"

namespace tune = manta::tune;

namespace {

int Load(const std::string& folder) {
  int step = 0;
  std::ifstream(folder + "/step") >> step;
  return step;
}

std::string Save(const std::string& folder, int step) {
  std::ofstream(folder + "/step") << step;
  return folder;
}

void Train(tune::Trial& trial) {
  const auto x = trial.Get<double>("x");
  const double bonus = trial.Get<std::string>("act") == "relu" ? 0 : 0.05;
  for (int i = trial.Restored() ? Load(trial.CheckpointFolder()) : 0; i < 9; ++i) {
    trial.Report({{"loss", (x - 0.3) * (x - 0.3) + bonus + 1.0 / (i + 1)}},
                 trial.Every(3) ? Save(trial.NewFolder(), i + 1) : tune::kNoCheckpoint);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  manta::Config config;
  config.cpus = 1;  // one trial at a time: a fixed order of completion
  config.store_bytes = 64ULL << 20;
  config.address = "private";
  manta::Init(config);
  tune::Results all = tune::Tuner(Train)
                          .Space({{"x", tune::Uniform(0, 1)}, {"act", tune::Choice({"relu", "tanh"})}})
                          .Minimize("loss")
                          .Search(tune::Random{.seed = 7})
                          .Schedule(tune::Asha{.max_t = 9, .reduction_factor = 3})
                          .Samples(std::atoi(argv[2]))
                          .KeepCheckpoints(2)
                          .StorageFolder(argv[1])
                          .Name("run")
                          .Resume(argc > 3 && std::strcmp(argv[3], "resume") == 0)
                          .Verbose(0)
                          .Run();
  for (const tune::Result& result : all)
    std::printf("%s after %lld %s\n", result.Describe().c_str(), static_cast<long long>(result.iteration),
                result.state.c_str());
  std::printf("best %s\n", all.Best().Describe().c_str());
}
