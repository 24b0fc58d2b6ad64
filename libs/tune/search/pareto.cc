#include "tune/search/pareto.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace manta::tune {

bool Dominates(const Objectives& a, const Objectives& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    better = better || a[i] < b[i];
  }
  return better;
}

// In lexicographic order only earlier points can dominate a point, so each point is compared with the fronts so far.
std::vector<int> Fronts(const std::vector<Objectives>& points) {
  std::vector<int> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int i) -> const Objectives& { return points[i]; });
  std::vector<std::vector<int>> fronts;
  std::vector<int> result(points.size());
  for (int i : order) {
    auto free = std::ranges::find_if(fronts, [&](const std::vector<int>& front) {
      return std::ranges::none_of(front.rbegin(), front.rend(), [&](int j) { return Dominates(points[j], points[i]); });
    });
    if (free == fronts.end()) free = fronts.insert(fronts.end(), std::vector<int>());
    free->push_back(i);
    result[i] = static_cast<int>(free - fronts.begin());
  }
  return result;
}

std::vector<double> CrowdingDistances(const std::vector<Objectives>& points, const std::vector<int>& members) {
  std::vector<double> distance(members.size());
  std::vector<int> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  std::size_t objectives = members.empty() ? 0 : points[members[0]].size();
  for (std::size_t m = 0; m < objectives; ++m) {
    auto value = [&](int i) { return points[members[i]][m]; };
    std::ranges::stable_sort(order, {}, value);
    double range = value(order.back()) - value(order.front());
    distance[order.front()] = distance[order.back()] = std::numeric_limits<double>::infinity();
    if (range <= 0) continue;
    for (std::size_t i = 1; i + 1 < order.size(); ++i) {
      distance[order[i]] += (value(order[i + 1]) - value(order[i - 1])) / range;
    }
  }
  return distance;
}

std::vector<int> OrderByFronts(const std::vector<Objectives>& points) {
  std::vector<int> front = Fronts(points);
  std::vector<double> distance(points.size());
  int last = front.empty() ? -1 : *std::ranges::max_element(front);
  for (int f = 0; f <= last; ++f) {
    std::vector<int> members;
    for (std::size_t i = 0; i < front.size(); ++i) {
      if (front[i] == f) members.push_back(static_cast<int>(i));
    }
    std::vector<double> distances = CrowdingDistances(points, members);
    for (std::size_t i = 0; i < members.size(); ++i) distance[members[i]] = distances[i];
  }
  std::vector<int> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int a, int b) { return front[a] != front[b] ? front[a] < front[b] : distance[a] > distance[b]; });
  return order;
}

}  // namespace manta::tune
