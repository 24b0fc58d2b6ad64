#include "store/allocator.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace manta::store {
namespace {

// Classes: every 64 bytes up to 1 KiB, then eight to each doubling, so at most an eighth is wasted.
constexpr std::uint64_t kFineLimit = 1024;
constexpr std::size_t kFineClasses = kFineLimit / kAlignment;  // 1..16

// The class of a request and the bytes a block of that class has.
std::size_t ClassUp(std::uint64_t bytes, std::uint64_t* rounded) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  if (bytes <= kFineLimit) {
    const std::size_t index = (bytes + kAlignment - 1) / kAlignment;
    *rounded = index * kAlignment;
    return index;
  }
  const int log = std::bit_width(bytes - 1) - 1;  // 2^log < bytes <= 2^(log+1)
  const std::uint64_t step = 1ULL << (log - 3);
  const std::uint64_t eighth = (bytes - (1ULL << log) + step - 1) / step;  // 1..8
  *rounded = (1ULL << log) + eighth * step;
  return kFineClasses + static_cast<std::size_t>(log - 10) * 8 + eighth;
}

std::uint64_t ClassBytes(std::size_t index) {
  if (index <= kFineClasses) return index * kAlignment;
  const std::size_t coarse = index - kFineClasses - 1;
  const std::size_t log = coarse / 8 + 10;
  return (1ULL << log) + (coarse % 8 + 1) * (1ULL << (log - 3));
}

std::uint64_t Aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Merging sorts all free blocks: not for a handful of them.
constexpr std::uint64_t kMergeFraction = 64;

}  // namespace

SegmentAllocator::SegmentAllocator(const Table& table) : shape_(table.shape()), high_rows_(table.used_rows()) {
  taken_.resize(high_rows_);
  struct Live {
    std::uint32_t row;
    std::uint64_t offset;
    std::uint64_t length;
  };
  std::vector<Live> live;
  for (std::uint32_t index = high_rows_; index-- > 0;) {
    RowCopy copy;
    if (table.Read(index, &copy)) {
      live.push_back(Live{index, copy.offset, copy.length});
    } else {
      free_rows_.push_back(index);
    }
  }
  std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) { return a.offset < b.offset; });
  std::uint64_t at = shape_.data;
  for (std::size_t i = 0; i < live.size(); ++i) {
    // A block was rounded up when it was taken, unless the next one came before that.
    const std::uint64_t limit = (i + 1 < live.size() ? live[i + 1].offset : shape_.bytes) - live[i].offset;
    std::uint64_t rounded = 0;
    ClassUp(live[i].length, &rounded);
    rounded = std::min(rounded, limit);
    if (live[i].offset > at) runs_.push_back(Run{at, live[i].offset - at});
    // A scribbled table may say that two overlap: then neither's bytes are given out.
    at = std::max(at, std::max(live[i].offset + rounded, Aligned(live[i].offset + live[i].length)));
    taken_[live[i].row] = Run{live[i].offset, rounded};
    if (rounded > 0) ++live_;
  }
  if (shape_.bytes > at) runs_.push_back(Run{at, shape_.bytes - at});
  for (const Run& run : runs_) free_bytes_ += run.bytes;
  std::make_heap(runs_.begin(), runs_.end(), Smaller);
}

std::uint64_t SegmentAllocator::RoundedUp(std::uint64_t bytes) {
  std::uint64_t rounded = 0;
  ClassUp(bytes, &rounded);
  return rounded;
}

void SegmentAllocator::PushRun(const Run& run) {
  if (run.bytes == 0) return;
  runs_.push_back(run);
  std::push_heap(runs_.begin(), runs_.end(), Smaller);
}

bool SegmentAllocator::Carve(std::uint64_t bytes, std::uint64_t* offset) {
  if (current_.bytes < bytes) {
    if (runs_.empty() || runs_.front().bytes < bytes) return false;
    std::pop_heap(runs_.begin(), runs_.end(), Smaller);
    const Run largest = runs_.back();
    runs_.pop_back();
    PushRun(std::exchange(current_, largest));
  }
  *offset = current_.offset;
  current_.offset += bytes;
  current_.bytes -= bytes;
  return true;
}

void SegmentAllocator::Merge() {
  for (std::size_t index = 0; index < bins_.size(); ++index) {
    for (const std::uint64_t offset : bins_[index]) runs_.push_back(Run{offset, ClassBytes(index)});
    bins_[index].clear();
  }
  unmerged_ = 0;
  if (current_.bytes > 0) runs_.push_back(std::exchange(current_, Run{}));
  std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
  std::vector<Run> merged;
  for (const Run& run : runs_) {
    if (!merged.empty() && merged.back().offset + merged.back().bytes == run.offset) {
      merged.back().bytes += run.bytes;
    } else {
      merged.push_back(run);
    }
  }
  runs_ = std::move(merged);
  std::make_heap(runs_.begin(), runs_.end(), Smaller);
}

bool SegmentAllocator::Allocate(std::uint64_t bytes, Block* block) {
  if (free_rows_.empty() && high_rows_ >= shape_.rows) {
    failed_ = 0;
    return false;
  }
  std::uint64_t rounded = 0;
  const std::size_t index = ClassUp(bytes, &rounded);
  std::uint64_t offset = 0;
  if (index < bins_.size() && !bins_[index].empty()) {
    offset = bins_[index].back();
    bins_[index].pop_back();
  } else {
    // The last object of a segment need not be rounded: a whole segment is just large enough.
    const std::uint64_t exact = Aligned(std::max<std::uint64_t>(bytes, 1));
    bool found = Carve(rounded, &offset);
    if (!found && !Hopeless(bytes) && unmerged_ > 0 && (live_ == 0 || unmerged_ >= capacity() / kMergeFraction)) {
      Merge();
      found = Carve(rounded, &offset);
    }
    if (!found && exact < rounded) {
      found = Carve(exact, &offset);
      rounded = exact;
    }
    if (!found) {
      failed_ = std::min(failed_, std::max<std::uint64_t>(bytes, 1));
      return false;
    }
  }
  if (free_rows_.empty()) {
    block->row = high_rows_++;
    taken_.resize(high_rows_);
  } else {
    block->row = free_rows_.back();
    free_rows_.pop_back();
  }
  block->offset = offset;
  block->bytes = rounded;
  taken_[block->row] = Run{offset, rounded};
  free_bytes_ -= rounded;
  ++live_;
  return true;
}

void SegmentAllocator::Free(std::uint32_t row) {
  if (row >= taken_.size() || taken_[row].bytes == 0) return;
  const Run run = taken_[row];
  taken_[row] = Run{};
  free_rows_.push_back(row);
  free_bytes_ += run.bytes;
  unmerged_ += run.bytes;
  failed_ = ~0ULL;
  --live_;
  std::uint64_t rounded = 0;
  const std::size_t index = ClassUp(run.bytes, &rounded);
  if (rounded != run.bytes) {  // not of a class: an odd end
    PushRun(run);
    return;
  }
  if (index >= bins_.size()) bins_.resize(index + 1);
  bins_[index].push_back(run.offset);
}

void SegmentAllocator::TakeFreed(const Table& table) {
  if (table.header().freed.load(std::memory_order_relaxed) == 0) return;
  std::uint32_t next = table.header().freed.exchange(0, std::memory_order_acquire);
  for (std::uint32_t count = 0; next != 0 && next <= shape_.rows && count < shape_.rows; ++count) {
    const std::uint32_t row = next - 1;
    next = table.row(row).next_freed.load(std::memory_order_acquire);
    // If it was freed while this allocator was built from the table, the row may be in use again.
    if (StateOf(table.row(row).word.load(std::memory_order_acquire)) == RowState::kFree) Free(row);
  }
}

}  // namespace manta::store
