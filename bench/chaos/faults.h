// What breaks: processes of a cluster are killed or stopped, nodes leave and join, as a seed says. Each fault looks at
// the Board whether it caught somebody in the middle of something: one that did not proves nothing.
//
// The driver's own node stays: with it the driver is cut off, which is an error and not a recovery. Nodes that are
// older than that are homes of detached actors, one after the other. Used by one thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "board.h"
#include "harness.h"
#include "heads.h"
#include "load.h"
#include "nodes.h"

namespace chaos {

struct Fault {
  const char* name;
  int weight;
  int done = 0;
  int hit = 0;  // those that caught somebody in the middle of something
};

class Faults {
 public:
  // `driver`: the driver's node; `heads`: if there are two.
  Faults(std::uint64_t seed, bench::Nodes& nodes, std::size_t driver, Heads* heads, bench::Board& board, Load& load);

  void One();
  // Says each.
  void SetVerbose(bool verbose) { verbose_ = verbose; }

  [[nodiscard]] const auto& all() const { return faults_; }
  // Processes that hosted tasks or actors and were killed, or were on a node that was given up, or of a detached actor
  // whose home may have been lost.
  [[nodiscard]] std::size_t killed() const { return killed_.size() + moved_; }
  [[nodiscard]] const std::vector<std::string>& said() const { return said_; }
  // Is everybody there that nobody killed, as the same process? Says who is not.
  void CheckSurvivors();

 private:
  [[nodiscard]] std::vector<pid_t> WorkersOf(std::size_t node) const;
  [[nodiscard]] std::vector<pid_t> Workers() const;
  bool AwaitBusy(const std::vector<pid_t>& pids);
  bool Kill(const std::vector<pid_t>& victims);
  pid_t Choose(const std::vector<pid_t>& candidates);
  bool KillOne(const std::vector<pid_t>& candidates);
  bool KillForkServer();
  bool KillNode(std::size_t at, bool workers_too);
  bool DrainNode(std::size_t at);
  bool SilenceNode();
  bool AddNode();
  bool RestartHead();
  bool SilenceHead();
  bool Stop(pid_t pid, double ms, bool always_hit);
  [[nodiscard]] std::size_t Any() { return random_() % living_.size(); }
  // Of living_: where detached actors are at home. When the driver's node is: any.
  [[nodiscard]] std::size_t Home();
  // It may have been a home: then detached actors move with it, wherever they were.
  void HomeLost();
  // Takes it out; another joins, unless there are enough.
  void Replace(std::size_t at);
  std::vector<int> LookAtActors();
  bool Gone(const std::vector<pid_t>& pids, double seconds) const;

  bool verbose_ = false;
  const double begin_ = bench::Now();
  std::mt19937_64 random_;
  bench::Nodes& nodes_;
  bench::Board& board_;
  Load& load_;
  Heads* const heads_;
  const std::size_t driver_;
  const pid_t driver_node_;
  pid_t head_;
  std::vector<std::size_t> living_;  // nodes that may be killed
  std::set<pid_t> killed_;
  std::size_t moved_ = 0;
  std::vector<int> actors_;   // where each counter was seen last
  std::vector<int> excused_;  // how often it may have moved since
  std::vector<std::string> said_;
  std::array<Fault, 13> faults_{{{"worker killed", 6},
                                 {"actor's process killed", 6},
                                 {"fork server killed", 1},
                                 {"node's daemon killed", 2},
                                 {"machine lost", 2},
                                 {"node silent for 5 s", 1},
                                 {"node joins", 1},
                                 {"head killed and restarted", 2},
                                 {"worker stopped for 0.3 s", 2},
                                 {"node stopped for 0.7 s", 2},
                                 {"detached actors' home lost", 2},
                                 {"node drained", 1},
                                 {"head silent", 1}}};
};

}  // namespace chaos
