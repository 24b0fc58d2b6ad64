#include "owner/task_log.h"

namespace manta::owner {

std::uint64_t TaskLog::Append(std::uint64_t bytes) {
  Segment* now = &segments_[current_];
  if (current_ == 0 || now->bytes - now->used < bytes) {
    const std::uint32_t fresh = Open(bytes > kSegment ? bytes : kSegment);
    if (fresh == 0) return 0;
    const std::uint32_t old = current_;
    current_ = fresh;
    if (old != 0 && segments_[old].live == 0) Close(old);
    now = &segments_[current_];
  }
  const std::uint64_t offset = now->offset + now->used;
  now->used += bytes;
  ++now->live;
  return offset;
}

void TaskLog::Drop(std::uint64_t offset) {
  const std::uint32_t index = by_chunk_[offset / shm::kChunkBytes];
  Segment& segment = segments_[index];
  if (--segment.live > 0) return;
  if (index == current_) {
    segment.used = 0;  // all gone: write over it, it is warm
  } else {
    Close(index);
  }
}

std::uint32_t TaskLog::Open(std::uint64_t bytes) {
  const std::uint64_t offset = chunks_.Allocate(bytes);
  if (offset == 0) return 0;
  std::uint32_t index = 0;
  if (unused_.empty()) {
    index = static_cast<std::uint32_t>(segments_.size());
    segments_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  segments_[index] = Segment{offset, bytes, 0, 0};
  const std::uint64_t first = offset / shm::kChunkBytes;
  const std::uint64_t last = (offset + bytes - 1) / shm::kChunkBytes;
  if (by_chunk_.size() <= last) by_chunk_.resize(last + 1);
  for (std::uint64_t c = first; c <= last; ++c) by_chunk_[c] = index;
  return index;
}

void TaskLog::Close(std::uint32_t segment) {
  chunks_.Free(segments_[segment].offset, segments_[segment].bytes);
  segments_[segment] = Segment{};
  unused_.push_back(segment);
}

void TaskLog::Clear() {
  for (std::uint32_t i = 1; i < segments_.size(); ++i) {
    if (segments_[i].bytes > 0) Close(i);
  }
  current_ = 0;
}

}  // namespace manta::owner
