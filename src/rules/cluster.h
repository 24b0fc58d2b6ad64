// Words that all rules about many nodes share: names of nodes and of task classes, labels, and the exponential average
// by which run times and bandwidths are estimated. Plain values, no state of their own.
#pragma once

#include <cstdint>

#include "manta/fields.h"
#include "types/strategy.h"

namespace manta::rules {

// A node for the life of the cluster, numbered by the control store at its first registration, never used twice. A
// node that comes back keeps its number and gets a higher incarnation (rules/membership.h).
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0;

// A function together with what it needs: the unit whose run time is averaged. Made by whoever submits (a hash).
using ClassId = std::uint64_t;

using manta::LabelRule;
using manta::Labels;
using manta::Matches;

// Weighs the newest sample by `kWeight`, so that what is known follows a change within about ten samples. The first
// sample counts whole: a guess would otherwise live on for ten more.
class Average {
 public:
  static constexpr double kWeight = 0.2;

  void Add(double sample) {
    value_ = known_ ? value_ + kWeight * (sample - value_) : sample;
    known_ = true;
  }
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] double Or(double guess) const { return known_ ? value_ : guess; }

 private:
  double value_ = 0;
  bool known_ = false;
};

}  // namespace manta::rules
