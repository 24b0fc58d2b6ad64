#include "control/log_segments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/fd.h"
#include "control/log_format.h"
#include "control/log_writer.h"

namespace manta::control {
namespace {

// Fewer bytes than `wanted` only at the file's end.
Result<std::string> ReadAt(const base::Fd& file, const std::string& path, std::uint64_t offset, std::size_t wanted) {
  std::string bytes(wanted, '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t count =
        pread(file.get(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(offset + have));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DiskError(Cat("cannot read ", path), errno);
    if (count == 0) break;
    have += static_cast<std::size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

std::string LogSegments::PathOf(std::uint64_t number) const { return folder_ + "/" + SegmentName(number); }

void LogSegments::Begin(std::uint64_t number, std::uint64_t durable_before, std::uint64_t bytes) {
  segments_[number] = Segment{durable_before, 0, bytes, {}};
}

void LogSegments::Add(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes, std::uint64_t sequence) {
  auto [it, fresh] = segments_.try_emplace(number);
  Segment& segment = it->second;
  if (fresh && it != segments_.begin()) {
    const Segment& before = std::prev(it)->second;
    segment.durable_before = std::max(before.last, before.durable_before);
  }
  segment.last = sequence;
  segment.bytes += bytes;
  if (segment.marks.empty() || offset >= segment.marks.back().offset + kMarkBytes) {
    segment.marks.push_back({sequence, offset});
  }
}

void LogSegments::Drop(std::uint64_t sequence, std::uint64_t keep_bytes) {
  std::uint64_t bytes = 0;
  for (const auto& [number, segment] : segments_) bytes += segment.bytes;
  while (segments_.size() > 1) {
    const auto& [number, segment] = *segments_.begin();
    if (segment.last > sequence || bytes - segment.bytes < keep_bytes) return;
    bytes -= segment.bytes;
    unlink(PathOf(number).c_str());
    segments_.erase(segments_.begin());
  }
}

Result<std::string> LogSegments::ReadAll(std::uint64_t number) const {
  const std::string path = PathOf(number);
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!file.valid() || fstat(file.get(), &info) != 0) return DiskError(Cat("cannot open ", path), errno);
  return ReadAt(file, path, 0, static_cast<std::size_t>(info.st_size));
}

Result<std::vector<Batch>> LogSegments::After(std::uint64_t sequence, std::size_t limit) const {
  const std::uint64_t start = segments_.empty() ? 0 : segments_.begin()->second.durable_before;
  if (segments_.empty() || sequence < start) {
    return Status(Code::kNotFound, Cat("the log starts after batch ", start, ", but ", sequence,
                                       " and later were asked for: copy everything instead"));
  }
  Gathered out;
  out.limit = limit;
  for (const auto& [number, segment] : segments_) {
    if (out.full()) break;
    if (segment.last <= sequence) continue;
    if (Status status = Gather(number, segment, sequence, &out); !status.ok()) return status;
  }
  return std::move(out.batches);
}

Status LogSegments::Gather(std::uint64_t number, const Segment& segment, std::uint64_t sequence, Gathered* out) const {
  const std::string path = PathOf(number);
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return DiskError(Cat("cannot open ", path), errno);
  // The last place that has nothing wanted before it.
  const auto after = std::upper_bound(segment.marks.begin(), segment.marks.end(), sequence + 1,
                                      [](std::uint64_t first, const Mark& mark) { return first < mark.sequence; });
  std::uint64_t offset = after == segment.marks.begin() ? sizeof(SegmentHeader) : std::prev(after)->offset;
  std::size_t wanted = kReadBytes;
  for (;;) {
    const Result<std::string> bytes = ReadAt(file, path, offset, wanted);
    if (!bytes.ok()) return bytes.status();
    LogReader reader(std::as_bytes(std::span(bytes.value())), number, offset);
    std::uint64_t at = offset;
    while (std::optional<Batch> batch = reader.Next()) {
      const std::uint64_t size = reader.offset() - std::exchange(at, reader.offset());
      const std::uint64_t found = batch->sequence;
      if (found > sequence && found <= segment.last) {
        out->bytes += size;
        out->batches.push_back(std::move(*batch));
      }
      // What comes after its last is written and perhaps not synced yet.
      if (found >= segment.last || out->full()) return {};
    }
    if (bytes.value().size() < wanted) {
      return Status(Code::kCorrupt, Cat(path, " has no batch at byte ", at, ", but should go on to ", segment.last));
    }
    // A record that was cut off by the end of what was read: from its beginning, and more if it was the first.
    wanted = at == offset ? 2 * wanted : kReadBytes;
    offset = at;
  }
}

}  // namespace manta::control
