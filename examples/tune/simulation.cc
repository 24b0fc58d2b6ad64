// Tunes a simulation: the price of a seller in a market whose customers are random. Each trial simulates one price; the
// run maximises the profit. A class runs one day per step and can be saved between days.
#include <manta/tune.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace tune = manta::tune;

class Market : public tune::Trainable {
 public:
  void Setup(const tune::Config& config) override { price_ = std::get<double>(config.at("price")); }
  tune::Metrics Step() override {
    std::mt19937_64 random(static_cast<std::uint64_t>(day_));
    std::exponential_distribution<double> limit(0.5);  // what a customer would pay at most
    for (int customer = 0; customer < 1000; ++customer) profit_ += limit(random) >= price_ ? price_ - 0.5 : 0;
    ++day_;
    return {{"profit", profit_ / day_}, {"done", day_ == 20}};
  }
  void SaveCheckpoint(const std::string& folder) override { std::ofstream(folder + "/day") << day_ << " " << profit_; }
  void LoadCheckpoint(const std::string& folder) override { std::ifstream(folder + "/day") >> day_ >> profit_; }

 private:
  double price_ = 0;
  double profit_ = 0;
  int day_ = 0;
};

int main() {
  const std::filesystem::path storage = std::filesystem::temp_directory_path() / "manta_tune_simulation";
  const tune::Results all = tune::Tuner::Of<Market>()
                                .Space({{"price", tune::Uniform(0.5, 6)}})
                                .Maximize("profit")
                                .Search(tune::Sobol{.seed = 3})
                                .Samples(12)
                                .CheckpointFrequency(10)
                                .ReuseProcesses()
                                .StorageFolder(storage.string())
                                .Verbose(0)
                                .Run();
  std::printf("best price of %zu: %s\n", all.size(), all.Best().Describe().c_str());
  std::filesystem::remove_all(storage);
}
