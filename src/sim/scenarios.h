// The questions that manta-sim answers, each a set of models and a table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/model.h"
#include "types/status.h"

namespace manta::sim {

// What the user may set; 0 (or below) leaves the scenario's own choice.
struct Settings {
  std::uint32_t nodes = 0;
  std::uint32_t cores = 0;
  std::uint64_t tasks = 0;
  std::uint64_t seed = 1;
  double mean_us = 0;
  double load = -1;
  double threshold_us = -1;
  double tolerance_us = -1;
  double heartbeat_us = 0;
  double eager_us = -1;
  std::uint32_t replicas = 0;
  std::uint32_t shards = 0;
  std::uint32_t sample = 0;
  std::function<double()> seconds;  // of real time, for simulated tasks per second; none: not told
};

struct Row {
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<std::pair<std::string, double>> values;
};
struct Table {
  std::string title;
  std::vector<Row> rows;
  std::uint64_t trace = 0;  // of all runs
};

struct Scenario {
  const char* name;
  const char* about;
  std::vector<Table> (*run)(const Settings& settings);
};
[[nodiscard]] const std::vector<Scenario>& Scenarios();

}  // namespace manta::sim
