// Recall is what a job that goes on after a crash remembers of its earlier runs: the results of the driver's tasks that
// were recorded, by the tasks' ids. Whoever makes such a call again gets the result, and the task does not run again.
//
// Only what is in the record can be had: tasks with a large result, or with Refs in it, are not remembered, and run
// again. Nor are calls of actors, nor what tasks called themselves, nor failures.
//
// Immutable once loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shm/spec.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::lineage {

class Recall {
 public:
  struct Call {
    std::uint64_t code = 0;        // CodeOf; 0: of another build of the program, which says nothing
    std::uint64_t arguments = 0;   // DigestOf
    ProcessId owner = kNoProcess;  // who made it
    std::uint32_t returns = 1;
    std::uint64_t values = 0;  // where they are: each with its size before it
  };

  // `program`: the hash of the one that runs now.
  static Result<std::unique_ptr<Recall>> Load(const std::string& folder, const Id& job, std::uint64_t program);

  // nullptr: it is not remembered.
  [[nodiscard]] const Call* Find(const Id& id) const {
    const auto it = calls_.find(id);
    return it == calls_.end() ? nullptr : &it->second;
  }
  // Were its arguments these? Refs of the process `self` among them were then Refs of the process that made the call:
  // in a cluster no number of a process is used twice.
  [[nodiscard]] static bool SameArguments(const Call& call, std::span<const std::byte> arguments, ProcessId self);
  [[nodiscard]] std::vector<std::span<const std::byte>> ValuesOf(const Call& call) const;
  [[nodiscard]] std::size_t size() const { return calls_.size(); }

  [[nodiscard]] static std::uint64_t CodeOf(const shm::SpecHeader& header);

 private:
  std::unordered_map<Id, Call> calls_;
  std::vector<std::byte> values_;
};

}  // namespace manta::lineage
