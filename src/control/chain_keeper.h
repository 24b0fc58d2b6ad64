// ChainKeeper is where the configuration of a chain is kept, and who may change it: one front at a time.
//
// DiskKeeper: in a folder of this machine, which is locked. EtcdKeeper (control/etcd_keeper.h): in etcd, so that the
// front may be on another machine tomorrow. doc/replication.md says what each survives.
//
// Threads: one loop's, beside what is said below.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/loop.h"
#include "control/chain_config.h"

namespace manta::control {

class ChainKeeper {
 public:
  // From what was saved last, if anything, to what this front begins with; or why it cannot.
  using Opening = std::function<Result<SavedChain>(std::optional<SavedChain> last)>;

  virtual ~ChainKeeper() = default;

  // Makes this process the front: saves what `opening` gives. Blocks. kInvalid: another front is there.
  virtual Result<SavedChain> Take(const Opening& opening) = 0;
  // Told when it is durable, perhaps before the call returns; one at a time. kLost: another front has come.
  virtual void Save(const SavedChain& chain, std::function<void(const Status&)> done) = 0;
  // Before then, by base::NowMicros, nobody else can be the front.
  [[nodiscard]] virtual std::int64_t UntilMicros() const { return std::numeric_limits<std::int64_t>::max(); }
  // Another front has come.
  virtual void OnLost(std::function<void(const Status&)> callback) = 0;
  [[nodiscard]] virtual std::string Where() const = 0;  // for messages
};

// Saves in a thread of its own: a sync of the folder may wait for whatever else is written to that disk, such as the
// copy of a member that joins, and requests go on under the old configuration meanwhile. What cannot be saved (a full
// disk) is tried again for as long as it takes, and told once on stderr: until then nobody is told of it.
class DiskKeeper : public ChainKeeper {
 public:
  DiskKeeper(base::Loop& loop, std::string folder) : loop_(loop), folder_(std::move(folder)) {}
  ~DiskKeeper() override;
  Result<SavedChain> Take(const Opening& opening) override;
  void Save(const SavedChain& chain, std::function<void(const Status&)> done) override;
  void OnLost(std::function<void(const Status&)>) override {}  // the folder stays locked
  [[nodiscard]] std::string Where() const override { return folder_ + "/chain"; }

 private:
  void Begin();
  void Finish();

  base::Loop& loop_;
  const std::string folder_;
  base::Fd lock_;
  base::Fd ready_;  // readable when the thread is done
  std::thread thread_;
  SavedChain saving_;
  Status saved_;           // the thread's until then
  bool troubled_ = false;  // and has said so
  base::Loop::TimerId again_ = 0;
  std::function<void(const Status&)> on_saved_;
};

}  // namespace manta::control
