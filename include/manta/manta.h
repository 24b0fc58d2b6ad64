// Manta: remote functions, actors and shared-memory objects. This one header is all a program needs.
#pragma once

#if __cplusplus < 202002L
#include "manta/internal/needs_cpp20.h"
#endif

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "manta/actor.h"
#include "manta/array.h"
#include "manta/codec.h"
#include "manta/errors.h"
#include "manta/fields.h"
#include "manta/internal/export.h"
#include "manta/options.h"
#include "manta/placement_group.h"
#include "manta/ref.h"
#include "manta/task.h"

namespace manta {

// Starts a private cluster in this machine (or joins the one at config.address). It is gone, with all
// its processes, memory and files, when the program ends, however it ends. Throws InvalidError for a
// bad configuration, UnavailableError if there is nothing to join, IoError.
MANTA_EXPORT void Init();
MANTA_EXPORT void Init(const Config& config);
// Ends all tasks and actors of this program, shows their last output, and leaves. Called at exit, too.
MANTA_EXPORT void Shutdown();
[[nodiscard]] MANTA_EXPORT bool IsInitialized();

// Of a job with a name: returns when all that the caller has seen (every result it got, every call it made) is on disk.
// Before output leaves the engine that must not be contradicted after a crash. Throws InvalidError if the job has no
// name, IoError if the disk takes nothing.
MANTA_EXPORT void Commit();

// Inside a task: has somebody asked to cancel it? Long loops should look now and then.
[[nodiscard]] MANTA_EXPORT bool CancelRequested();
MANTA_EXPORT void CheckCancelled();  // throws CancelledError if so

// What a task or actor may know about where it runs.
struct Context {
  std::string task{};  // name of the task or method; empty in the driver
  std::string task_id{};
  std::string node{};
  std::uint32_t worker_pid = 0;
  std::vector<std::uint32_t> gpus{};  // device ids assigned, as in CUDA_VISIBLE_DEVICES
  bool in_worker = false;
};
[[nodiscard]] MANTA_EXPORT Context CurrentContext();

// What all nodes of the cluster have together, by name; and what of it nobody uses, as far as is known (the others'
// part is up to 100 ms old).
[[nodiscard]] MANTA_EXPORT std::map<std::string, double> ClusterResources();
[[nodiscard]] MANTA_EXPORT std::map<std::string, double> AvailableResources();

struct NodeInfo {
  std::uint32_t number = 0;  // 0: the only node of a private cluster
  std::string name{};
  bool draining = false;
  bool here = false;  // this process's
  std::map<std::string, std::string> labels{};
  std::map<std::string, double> resources{};
  std::map<std::string, double> available{};
  bool alive = true;
  std::string address{};          // of the port where other nodes reach it: "10.0.0.7:40123"; empty: a private node
  std::string why{};              // of a dead node: why it left or died
  std::uint64_t store_bytes = 0;  // of its object store
};
// The live nodes. `all`: also those that left or died since the cluster's head started.
[[nodiscard]] MANTA_EXPORT std::vector<NodeInfo> Nodes(bool all = false);

}  // namespace manta
