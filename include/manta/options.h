// What can be asked of a cluster, a task and an actor.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "manta/placement.h"

namespace manta {

// How to start or join a cluster. Bad values make Init throw InvalidError and change nothing.
struct Config {
  double cpus = 0;            // 0: as many as this process may use
  bool without_cpus = false;  // the node has none: it holds only what asks for none
  double gpus = 0;
  std::map<std::string, double> resources{};    // anything else, by name
  std::map<std::string, std::string> labels{};  // of the node; see manta/placement.h
  std::uint64_t store_bytes = 0;                // 0: 40% of the memory that is free
  std::string spill_folder{};                   // for what finds no room; empty: the system's for temporary files
  std::uint64_t spill_bytes = 0;                // of the node; 0: as much as the disk has
  std::uint64_t lineage_memory = 0;             // of a process, for rebuilding lost values; 0: 256 MB (doc/lineage.md)
  // Empty: $MANTA_ADDRESS, else the cluster that `manta start` started on this machine, else (and if any of the above
  // is set) a private one. "auto": the live local one. "private": a private one, whatever runs here. Else of a node
  // ("@manta-1000-4711") or of the head of a cluster that has a node on this machine ("10.0.0.7:6400").
  std::string address{};
  std::string space = "default";  // namespace of actor names
  // What this program's tasks, actors and placement groups may have at a time, on all nodes together: {"CPU", 4}. Of
  // what is not named here, all there is; never more than `manta start --job-quota` grants.
  std::map<std::string, double> quota{};
  bool show_output = true;  // print what workers print
  // With a name, what the job does is kept on disk (doc/lineage.md): after a crash `manta lineage` and `manta replay`
  // look at it, and a job of the same name with `resume` takes it up. It goes when the program ends well, unless a
  // task failed or `keep_lineage` says otherwise. Two jobs of one name do not run at a time.
  std::string job{};
  bool resume = false;
  bool keep_lineage = false;
};

struct PutOptions {
  // Put returns when the value is on disk: in a cluster in its control store, so that it survives its process and node;
  // on a private node in the folder of the job, which must have a name. It must have no Refs in it. See doc/lineage.md.
  bool durable = false;
};

// Set through Task(f).SetName(…) and so on.
struct TaskOptions {
  std::string name{};
  double cpus = 1;
  double gpus = 0;
  std::map<std::string, double> resources{};
  int retries = 3;                // after the worker's death; exceptions only if asked:
  std::uint64_t retry_match = 0;  // a function that looks at the exception; see RetryOn
  // Of a call of an actor: instead of the actor's max_call_retries.
  std::optional<std::int64_t> call_retries{};
  std::chrono::microseconds timeout{0};  // of one run; 0: none
  int priority = 0;                      // higher goes first
  Placement placement{};
};

struct ActorSettings {
  std::string name{};
  std::string space{};  // empty: that of Init
  double cpus = 0;
  double gpus = 0;
  std::map<std::string, double> resources{};
  bool detached = false;  // lives on when its creator is gone
  bool get_if_exists = false;
  // -1: no limit. If not set: no limit and 3, but of a concurrent actor no limit and 0, and without replay 0 and 0.
  std::optional<std::int64_t> max_restarts{};
  std::optional<std::int64_t> max_call_retries{};  // of calls caught by a restart
  std::uint32_t concurrency = 1;                   // calls at a time
  bool ordered = true;                             // calls of one caller run in order
  bool replay = true;                              // a restart repeats the calls since the last checkpoint
  std::uint64_t checkpoint_calls = 0;              // a checkpoint after so many calls; 0: when the engine sees fit
  std::chrono::microseconds checkpoint_time{0};    // … or so long after the last; 0: the same
  std::string about{};                             // a front end's own facts, for whoever finds the actor by its name
  Placement placement{};
};

}  // namespace manta
