// A segment as the keeper sees it. Private to the keeper's three source files.
#pragma once

#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "shm/mapping.h"
#include "store/allocator.h"
#include "store/keeper.h"
#include "store/segment.h"

namespace manta::store {

struct Keeper::Segment {
  enum class Use { kLent, kKept, kCached };

  std::uint32_t id = 0;
  base::Fd fd;
  shm::Mapping map;
  Table table;
  bool whole = false;

  Use use = Use::kKept;
  ProcessId borrower = kNoProcess;  // kNoProcess: the keeper itself, for objects that come back from disk
  std::uint64_t gate = kNoGate;
  std::unique_ptr<SegmentAllocator> own;  // while the keeper itself is the borrower
  ProcessId last_borrower = kNoProcess;   // has it mapped already
  std::int64_t lent_us = 0;
  std::int64_t idle_us = 0;  // since when nobody allocated in it
  std::uint64_t uses = 0;    // seen last

  // Not empty: the segment is in a file on disk and takes nothing of the store's capacity.
  SpillFiles::Piece disk;
  bool owns_disk = false;  // false: a spilled object that is read where it is, whose Stored has the piece

  [[nodiscard]] bool on_disk() const { return disk.file != nullptr; }
  [[nodiscard]] int file() const { return on_disk() ? disk.file->fd.get() : fd.get(); }

  [[nodiscard]] bool lent() const { return use == Use::kLent; }

  // Calls f(RowCopy) for each row that holds something and makes sense.
  template <typename F>
  void ForEach(F&& f) const {
    const std::uint32_t end = table.used_rows();
    RowCopy copy;
    for (std::uint32_t row = 0; row < end; ++row) {
      if (table.Read(row, &copy)) f(copy);
    }
  }

  // Does no row hold anything? One that is changing counts as something.
  [[nodiscard]] bool Empty() const {
    const std::uint32_t end = table.used_rows();
    for (std::uint32_t row = 0; row < end; ++row) {
      const RowState state = StateOf(table.row(row).word.load(std::memory_order_seq_cst));
      if (state == RowState::kWriting || state == RowState::kSealed || state == RowState::kDying) return false;
    }
    return true;
  }

  // A loan that its borrower has had no time to use: taking it back at once would only make it ask again.
  [[nodiscard]] bool JustLent(std::int64_t now_us) const {
    return now_us - lent_us < 100'000 && table.header().uses.load(std::memory_order_relaxed) == uses;
  }
};

}  // namespace manta::store
