// What both kinds of ASHA share: the milestones of the brackets and the choice of a bracket for a trial.
#pragma once

#include <memory>
#include <vector>

#include "manta/tune/schedule.h"

namespace manta::tune {

// For each bracket its milestones, the highest first. Wrong options throw std::invalid_argument.
std::vector<std::vector<double>> AshaMilestones(const Asha& options);

// A bracket is drawn with a probability that falls by e for each milestone that it has less than the longest.
std::size_t AshaBracket(const Asha& options, TrialNumber trial);

std::unique_ptr<Scheduler> MakePromotingAsha(const Asha& options);

}  // namespace manta::tune
