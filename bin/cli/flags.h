// Options that `start` and `cluster` share: they are handed on to the daemons that they start.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "node/launch.h"

namespace manta::cli {

// Of a head.
struct HeadFlags {
  std::vector<std::string> job_quota;
  int schedulers = 1;

  void AddTo(CLI::App& command);
  void Tell(node::HeadOptions* head) const;
};

// Of nodes.
struct NodeFlags {
  std::vector<std::string> resources;
  std::string store_bytes;
  std::string spill;
  std::string spill_limit;
  std::string lineage_memory;
  std::string state;

  void AddTo(CLI::App& command);
  // For a daemon; without the store, for which commands have defaults of their own.
  [[nodiscard]] std::vector<std::string> Words() const;
};

// Takes "512M" for 536870912.
CLI::Validator IsBytes();

// "--flag value" for what was said.
void AddWord(const char* flag, const std::string& value, std::vector<std::string>* words);

}  // namespace manta::cli
