// DurableValues keeps values of Put(…, {.durable = true}) where they outlive their process, and finds them again.
//
// In a cluster that is its control store (table `objects`, durable/JOB/ID): a value is in parts of 4 MB, and is there
// when its first key is, which is written last and says how large it is. It survives what the control store does
// (doc/replication.md), and goes with its job: the job's node says when that ends, and if the node dies, the head knows
// by durable-of/NODE/JOB which jobs have ended with it. On the only node of a private cluster it is a file in the
// folder of the job, if that has a name; then it is for `manta replay`, as nothing there outlives the node's daemon.
//
// Threads: Keep from any, and it blocks. Find and Forget from any; callbacks come on the far thread. Destroyed from
// another than that one, before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "far/thread.h"
#include "types/id.h"
#include "types/status.h"
#include "wire/control_client.h"
#include "wire/secrets.h"

namespace manta::owner {

class DurableValues {
 public:
  using OnFound = std::function<void(Result<std::vector<std::byte>>)>;  // kNotFound: it is not there

  // In the control store at `head`.
  // `home`: of the job's driver, this node's number; of others 0. If that node dies, the head drops the values.
  DurableValues(far::Thread& thread, std::string head, std::shared_ptr<wire::Secrets> secrets, NodeNumber home);
  ~DurableValues();
  DurableValues(const DurableValues&) = delete;
  DurableValues& operator=(const DurableValues&) = delete;

  // Returns when it is on disk.
  Status Keep(const Id& job, const Id& object, std::span<const std::byte> value);
  void Find(const Id& job, const Id& object, OnFound done);
  void Forget(const Id& job, const Id& object);

 private:
  class Writing;
  class Reading;

  far::Thread& thread_;
  const NodeNumber home_;
  std::unique_ptr<wire::ControlClient> client_;  // the far thread's
  bool home_is_known_ = false;                   // to the head; the far thread's
};

// In the folder of a job (lineage/folder.h).
Status KeepInFolder(const std::string& folder, const Id& object, std::span<const std::byte> value);
[[nodiscard]] Result<std::vector<std::byte>> FindInFolder(const std::string& folder, const Id& object);
void ForgetInFolder(const std::string& folder, const Id& object);

}  // namespace manta::owner
