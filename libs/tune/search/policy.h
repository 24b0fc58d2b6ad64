// Lines of the policy files of population based training: one JSON list each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manta/tune/schedule.h"

namespace manta::tune {

struct PolicyRow {
  std::string trial_tag;
  std::string donor_tag;
  std::int64_t trial_iteration = 0;
  std::int64_t donor_iteration = 0;
  Config donor_config;  // nested objects become key paths
  Config config;
};

// Text that is no policy file throws std::invalid_argument, which names the line.
std::vector<PolicyRow> ParsePolicy(std::string_view text);

}  // namespace manta::tune
