// TransferStore is the store as the daemon's own threads see it: a StoreClient whose questions to the keeper go through
// the loop, like those of any process, but without a socket.
//
// Threads: client() from any but the loop's, which would wait for itself. Stop from the loop's: every question fails
// from then on, also those that wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "node/mailbox.h"
#include "store/client.h"
#include "store/keeper.h"

namespace manta::node {

class TransferStore final : public store::KeeperLink {
 public:
  // `self`: the process number that stands for these threads.
  TransferStore(Mailbox& mailbox, store::Keeper& keeper, ProcessId self);
  ~TransferStore() override;  // after Stop, and after all threads that use it
  TransferStore(const TransferStore&) = delete;
  TransferStore& operator=(const TransferStore&) = delete;

  [[nodiscard]] store::StoreClient& client() { return *client_; }
  [[nodiscard]] ProcessId self() const { return self_; }
  void Stop();

  // KeeperLink
  Result<store::LentSegment> Request(std::uint64_t bytes) override;
  Result<store::OpenedSegment> Open(std::uint32_t segment) override;
  Result<Place> Restore(const Id& object) override;
  void Free(std::vector<Id> objects, std::vector<Place> places) override;
  void Return(std::uint32_t segment) override;

 private:
  template <typename T>
  Result<T> Ask(std::function<void(std::function<void(Result<T>)>)> question);

  Mailbox& mailbox_;
  store::Keeper& keeper_;
  const ProcessId self_;
  std::vector<std::uint64_t> board_;
  std::mutex mutex_;
  std::condition_variable answered_;
  bool stopped_ = false;
  std::optional<store::StoreClient> client_;
};

}  // namespace manta::node
