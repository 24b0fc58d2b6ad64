// The commands of `manta`: a file for each, or for a few that belong together. Every command adds itself to the command
// line, with its options; main runs the one that was chosen when all is parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "types/status.h"

namespace manta::cli {

constexpr std::int64_t kAnswerUs = 5'000'000;
constexpr int kMaxValid = 365 * 86'400;  // seconds, of a join token

struct Line {
  explicit Line(std::string about) : app(std::move(about)) {}
  CLI::App app;
  std::string folder;           // of the cluster: --secrets
  std::function<int()> chosen;  // gives the exit status
};

// Says it on stderr; the exit status of a command that failed.
int Complain(const Status& status);

// `run` gets the folder and the options as they were parsed.
template <typename Options>
CLI::App* AddCommand(Line& line, const std::string& name, const std::string& about,
                     const std::shared_ptr<Options>& options,
                     int (*run)(const std::string& folder, const Options& options)) {
  CLI::App* command = line.app.add_subcommand(name, about);
  command->callback(
      [&line, options, run] { line.chosen = [&line, options, run] { return run(line.folder, *options); }; });
  return command;
}

void AddStart(Line& line);    // start.cc
void AddStop(Line& line);     // start.cc
void AddStatus(Line& line);   // show.cc
void AddMemory(Line& line);   // show.cc
void AddNodes(Line& line);    // head.cc
void AddDrain(Line& line);    // head.cc
void AddToken(Line& line);    // token.cc
void AddCluster(Line& line);  // cluster.cc
void AddLineage(Line& line);  // lineage.cc
void AddReplay(Line& line);   // replay.cc
void AddTune(Line& line);     // tune.cc

}  // namespace manta::cli
