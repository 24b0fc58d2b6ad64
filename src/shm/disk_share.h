// DiskShare is what one process has of the spill folder of its node, in bytes. All processes of the node together have
// no more than the limit: each notes in its doorbell what it has, and whoever wants more adds that first and then sums
// up, so that two who do so at once may both be refused, but never both be served beyond it. What a process had that
// was killed goes with its doorbell (NodeArea::Reset), as its files do, which have no names.
//
// Not thread-safe.
#pragma once

#include <cstdint>

#include "shm/node_area.h"

namespace manta::shm {

class DiskShare {
 public:
  // Without a node: its only process.
  explicit DiskShare(std::uint64_t limit = ~0ULL) : limit_(limit) {}
  DiskShare(std::uint64_t limit, NodeArea& area, ProcessId process)
      : limit_(limit), area_(&area), bell_(&area.bell(process)) {}

  // False: all would have more than the limit; nothing has changed.
  bool Take(std::uint64_t bytes) {
    if (bytes > limit_) return false;
    Set(mine_ + bytes);
    if (all() <= limit_) return true;
    Set(mine_ - bytes);
    return false;
  }
  void Return(std::uint64_t bytes) { Set(mine_ - bytes); }

  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] std::uint64_t mine() const { return mine_; }
  [[nodiscard]] std::uint64_t all() const { return area_ == nullptr ? mine_ : area_->OnDisk(); }

 private:
  void Set(std::uint64_t bytes) {
    mine_ = bytes;
    if (bell_ != nullptr) bell_->on_disk.store(bytes, std::memory_order_seq_cst);
  }

  std::uint64_t limit_;
  std::uint64_t mine_ = 0;
  NodeArea* area_ = nullptr;
  Doorbell* bell_ = nullptr;
};

}  // namespace manta::shm
