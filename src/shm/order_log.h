// The order in which an actor ran its calls, in the arena of its process: what recovery must repeat.
// A ring of records; the daemon holds the arena, so they survive the process. A record is complete
// once `count` covers it, and that is before the call's answer can be seen. Once the ring is full, the oldest of
// its records may be half overwritten by one that never came to be counted: trust all but that one.
#pragma once

#include <atomic>
#include <cstdint>

#include "types/id.h"

namespace manta::shm {

struct OrderRecord {
  Id call;                   // derived from its caller: names the logical task, not a process
  std::uint64_t digest = 0;  // of the reply: a replay must answer the same
  std::uint64_t failed = 0;  // the method threw
};

struct OrderMemory {
  static constexpr std::uint64_t kRecords = 32768;
  std::atomic<std::uint64_t> count;
  alignas(64) OrderRecord records[kRecords];
};

class OrderLog {
 public:
  OrderLog() = default;
  // Only the count is written: setting every record would take a megabyte of memory for each actor at its start.
  explicit OrderLog(void* memory) : log_(static_cast<OrderMemory*>(memory)) {
    log_->count.store(0, std::memory_order_release);
  }

  void Append(const OrderRecord& record) {
    if (log_ == nullptr) return;
    const std::uint64_t at = log_->count.load(std::memory_order_relaxed);
    log_->records[at % OrderMemory::kRecords] = record;
    log_->count.store(at + 1, std::memory_order_release);
  }

 private:
  OrderMemory* log_ = nullptr;
};

}  // namespace manta::shm
