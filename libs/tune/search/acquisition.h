// Acquisition functions for minimisation: how much a point with the predicted mean and deviation is worth trying.
// Higher is better. All are logarithms or linear, so that they keep a slope where an improvement is very unlikely.
#pragma once

#include "manta/tune/searchers.h"

namespace manta::tune {

struct AcquisitionValue {
  double value;
  double by_mean;       // the derivative by the mean
  double by_deviation;  // and by the deviation
};

// Expected improvement below `best` (its logarithm), probability of improvement (its logarithm), or the lower
// confidence bound mean - kappa deviation (negated).
AcquisitionValue Acquire(Gp::Acquisition kind, double mean, double deviation, double best, double kappa);

}  // namespace manta::tune
