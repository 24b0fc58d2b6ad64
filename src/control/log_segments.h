// LogSegments knows which segments of the embedded storage's log are on the disk, and where in them a batch is: it
// reads pages of the log for whoever fills another copy, and drops what is not needed any more.
//
// A page costs what it holds, wherever it is: the loop that reads it also answers clients. So it remembers a place
// every kMarkBytes of each segment, and begins there instead of at the segment's first record.
//
// Threads: one loop's. The newest segment may be written to meanwhile (LogWriter); of it only batches are read whose
// writer has said that they are durable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/storage.h"

namespace manta::control {

class LogSegments {
 public:
  static constexpr std::uint64_t kMarkBytes = 64U << 10;
  static constexpr std::size_t kReadBytes = 256U << 10;  // at a time

  explicit LogSegments(std::string folder) : folder_(std::move(folder)) {}

  // There is a segment of this number, above all others; `bytes` of it before it is told what it holds.
  void Begin(std::uint64_t number, std::uint64_t durable_before, std::uint64_t bytes);
  // A durable batch is at this offset of that segment, which may be new; in order of sequences.
  void Add(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes, std::uint64_t sequence);
  // Whole segments of which nothing is above `sequence`, oldest first, as long as `keep_bytes` are left; never the
  // newest, which is the writer's.
  void Drop(std::uint64_t sequence, std::uint64_t keep_bytes);

  // All bytes of a segment.
  [[nodiscard]] Result<std::string> ReadAll(std::uint64_t number) const;
  // Up to `limit` (or about Storage::kPageBytes) of the batches above this sequence, oldest first. kNotFound: they are
  // dropped. kCorrupt: one that was durable cannot be read.
  [[nodiscard]] Result<std::vector<Batch>> After(std::uint64_t sequence, std::size_t limit) const;

  [[nodiscard]] std::size_t size() const { return segments_.size(); }

 private:
  struct Mark {
    std::uint64_t sequence = 0;
    std::uint64_t offset = 0;
  };
  struct Segment {
    std::uint64_t durable_before = 0;  // sequence
    std::uint64_t last = 0;            // sequence of its last batch; 0: none
    std::uint64_t bytes = 0;
    std::vector<Mark> marks;  // the first batch, and then every kMarkBytes
  };
  struct Gathered {
    std::vector<Batch> batches;
    std::size_t limit = 0;
    std::uint64_t bytes = 0;
    [[nodiscard]] bool full() const { return batches.size() >= limit || bytes >= Storage::kPageBytes; }
  };
  [[nodiscard]] std::string PathOf(std::uint64_t number) const;
  Status Gather(std::uint64_t number, const Segment& segment, std::uint64_t sequence, Gathered* out) const;

  const std::string folder_;
  std::map<std::uint64_t, Segment> segments_;  // by number
};

}  // namespace manta::control
