// Many clients, each an actor of its own, that submit at the same time.
#pragma once

#include <manta/manta.h>

#include <cstdint>
#include <vector>

#include "harness.h"
#include "work.h"

namespace bench {

// How many calls a second all of `clients` make together when `method(count)` makes that many.
template <typename Client>
double CallsPerSecond(double seconds, const std::vector<manta::ActorHandle<Client>>& clients,
                      Tally (Client::*method)(std::uint64_t)) {
  constexpr std::uint64_t kEach = 10'000;
  std::vector<manta::Ref<Tally>> refs(clients.size());
  const auto round = [&](std::uint64_t each, Tally* tally) {
    for (std::size_t i = 0; i < clients.size(); ++i) refs[i] = clients[i].Task(method).Remote(each);
    for (const auto& ref : refs) tally->Merge(ref.Get());
    return each * clients.size();
  };
  Tally warm;
  warm.Finish(round(kBatch, &warm));
  Tally tally;
  std::uint64_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) count += round(kEach, &tally);
  tally.Finish(count);
  return static_cast<double>(count) / (now - begin);
}

}  // namespace bench
