// Order among points with several objectives, all to be minimised. A point dominates another if it is nowhere worse and
// somewhere better. Front 0 holds the points that no point dominates, front 1 those that only front 0 dominates, ….
#pragma once

#include <vector>

namespace manta::tune {

using Objectives = std::vector<double>;

bool Dominates(const Objectives& a, const Objectives& b);

// The front of each point.
std::vector<int> Fronts(const std::vector<Objectives>& points);

// For each member of a front: how far its neighbours in the front are apart, summed over the objectives, each scaled by
// its range. Members at an end of an objective have infinity.
std::vector<double> CrowdingDistances(const std::vector<Objectives>& points, const std::vector<int>& members);

// The indices of all points: earlier fronts first, in a front the less crowded first, then the earlier index.
std::vector<int> OrderByFronts(const std::vector<Objectives>& points);

}  // namespace manta::tune
