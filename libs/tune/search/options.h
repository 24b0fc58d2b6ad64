// Checks of the searchers' options.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "manta/tune/search.h"
#include "tune/search/encoding.h"

namespace manta::tune {

inline void Require(bool holds, const std::string& option, double value, const std::string& wanted) {
  if (holds) return;
  throw std::invalid_argument(option + " = " + Describe(Value(value)) + ". Give a number that is " + wanted + ".");
}

inline std::vector<Mode> ModesOf(Mode mode, const std::vector<Mode>& modes) {
  return modes.empty() ? std::vector<Mode>{mode} : modes;
}

// A reward is one number, so known results are for one objective only.
inline void RequireOneObjective(const std::vector<Mode>& modes, const std::vector<double>& rewards) {
  if (modes.size() <= 1 || rewards.empty()) return;
  throw std::invalid_argument("evaluated_rewards has " + std::to_string(rewards.size()) + " rewards, but there are " +
                              std::to_string(modes.size()) + " objectives. Leave evaluated_rewards out.");
}

}  // namespace manta::tune
