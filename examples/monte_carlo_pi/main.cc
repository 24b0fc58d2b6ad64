// Pi by throwing darts, in many tasks, with the estimate shown as results come in.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "manta/manta.h"

namespace {

std::int64_t Hits(std::uint64_t seed, std::int64_t darts) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::int64_t hits = 0;
  for (std::int64_t i = 0; i < darts; ++i) {
    const double x = uniform(random);
    const double y = uniform(random);
    hits += x * x + y * y < 1;
  }
  return hits;
}

}  // namespace

int main() {
  constexpr int kTasks = 64;
  constexpr std::int64_t kDarts = 500'000;
  manta::Init();

  std::vector<manta::Ref<std::int64_t>> rest;
  for (std::uint64_t seed = 0; seed < kTasks; ++seed) rest.push_back(manta::Task(Hits).Remote(seed, kDarts));

  std::int64_t hits = 0;
  std::int64_t darts = 0;
  while (!rest.empty()) {
    auto [ready, waiting] = manta::Wait(rest, std::min<std::size_t>(rest.size(), 16));
    for (std::int64_t part : manta::Get(ready)) {
      hits += part;
      darts += kDarts;
    }
    rest = std::move(waiting);
    std::printf("%11lld darts: pi is about %.5f\n", static_cast<long long>(darts),
                4 * static_cast<double>(hits) / static_cast<double>(darts));
  }
  manta::Shutdown();
  return 0;
}
