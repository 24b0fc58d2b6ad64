// A parameter server: one actor holds the model, tasks compute gradients on their part of the data.
// Fits y = 3 x₀ - 2 x₁ + 1 by gradient descent.
#include <array>
#include <cstdio>
#include <random>
#include <vector>

#include "manta/manta.h"

namespace {

using Weights = std::array<double, 3>;

struct Sample {
  double x0 = 0, x1 = 0, y = 0;
};

class ParameterServer {
 public:
  [[nodiscard]] Weights Get() const { return weights_; }
  void Apply(const std::vector<Weights>& gradients, double rate) {
    for (const Weights& gradient : gradients) {
      for (std::size_t i = 0; i < weights_.size(); ++i)
        weights_[i] -= rate * gradient[i] / static_cast<double>(gradients.size());
    }
  }

 private:
  Weights weights_{};
};

manta::Array<Sample> MakeData(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Sample> samples(count);
  for (Sample& sample : samples) {
    sample.x0 = normal(random);
    sample.x1 = normal(random);
    sample.y = 3 * sample.x0 - 2 * sample.x1 + 1 + 0.1 * normal(random);
  }
  return manta::Array<Sample>(std::move(samples));
}

Weights Gradient(const manta::Array<Sample>& samples, const Weights& w) {
  Weights gradient{};
  for (const Sample& s : samples) {
    const double error = w[0] * s.x0 + w[1] * s.x1 + w[2] - s.y;
    gradient[0] += error * s.x0;
    gradient[1] += error * s.x1;
    gradient[2] += error;
  }
  for (double& g : gradient) g /= static_cast<double>(samples.size());
  return gradient;
}

}  // namespace

int main() {
  manta::Init();
  auto server = manta::Actor<ParameterServer>().Remote();
  std::vector<manta::Ref<manta::Array<Sample>>> parts;
  for (std::uint64_t i = 0; i < 4; ++i) parts.push_back(manta::Task(MakeData).Remote(i, 20'000));

  // Nothing here waits: each step's Refs are arguments of the next.
  for (int step = 0; step < 40; ++step) {
    manta::Ref<Weights> weights = server.Task(&ParameterServer::Get).Remote();
    std::vector<manta::Ref<Weights>> gradients;
    for (const auto& part : parts) gradients.push_back(manta::Task(Gradient).Remote(part, weights));
    (void)server.Task(&ParameterServer::Apply).Remote(gradients, 0.3);
    if (step % 10 == 9) {
      const Weights w = server.Task(&ParameterServer::Get).Remote().Get();
      std::printf("step %2d: y = %.3f x0 %+.3f x1 %+.3f\n", step + 1, w[0], w[1], w[2]);
    }
  }
  manta::Shutdown();
  return 0;
}
