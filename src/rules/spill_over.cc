#include "rules/spill_over.h"

#include <algorithm>
#include <cmath>

namespace manta::rules {

SpillOver::Verdict SpillOver::Decide(const NodeLoad& load, std::size_t index, const Resources& free,
                                     const Asked& asked) const {
  const std::int64_t waiting = std::max<std::int64_t>(asked.waiting, 0);
  if (asked.draining) return {0, waiting, Why::kDraining};
  if (asked.elsewhere) return {0, waiting, Why::kElsewhere};
  const Resources& need = load.need(index);
  const Resources& total = asked.total != nullptr ? *asked.total : load.total();
  if (!total.Covers(need)) return {0, waiting, Why::kMissing};
  if (waiting == 0) return {};
  if (asked.fetch_us > options_.fetch_threshold_us) return {0, waiting, Why::kElsewhere};

  // What is free serves the first of them at once; the rest share what the node has.
  std::int64_t fit = waiting;
  for (const auto& [name, amount] : need.amounts()) {
    if (amount > 0) fit = std::min(fit, std::max<std::int64_t>(free.Get(name), 0) / amount);
  }
  if (fit >= waiting) return {waiting, 0, Why::kRoom};
  std::int64_t excess = 0;
  const double mean = load.MeanRunUs(index);
  for (const auto& [name, amount] : need.amounts()) {
    const double one = static_cast<double>(amount) * mean;  // unit-microseconds that a task takes
    if (one <= 0 || free.Get(name) >= amount * waiting) continue;
    const double backlog = load.Backlog(name) - static_cast<double>(fit) * one;
    const double may_wait = options_.threshold_us * static_cast<double>(total.Get(name));
    if (backlog > may_wait) excess = std::max(excess, static_cast<std::int64_t>(std::ceil((backlog - may_wait) / one)));
  }
  excess = std::min(excess, waiting - fit);
  return {waiting - excess, excess, excess > 0 ? Why::kOverload : Why::kShortWait};
}

bool SpillOver::Take(const NodeLoad& load, std::size_t index, const Resources& free, double expected_wait_us,
                     bool final, bool draining) const {
  if (draining || !load.total().Covers(load.need(index))) return false;
  return final || load.WaitUs(index, free) <= expected_wait_us + options_.tolerance_us;
}

}  // namespace manta::rules
