#include "owner/shelf_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "types/text.h"

namespace manta::owner {
namespace {

constexpr std::uint64_t kSegment = 1ULL << 20;
constexpr std::uint64_t kFirst = 8;  // nothing is at 0

Status Failed(const char* what, const std::string& folder) {
  const int error = errno;
  return Status(Code::kIo, Cat("cannot ", what, " lineage in '", folder, "': ", std::strerror(error),
                               error == ENOSPC || error == EDQUOT ? "; free disk space or name a larger disk (--spill)"
                               : error == EMFILE                  ? "; raise `ulimit -n`"
                                                                  : ""));
}

}  // namespace

Status ShelfFile::Open() {
  if (fd_.valid()) return {};
  if (folder_.empty()) return Status(Code::kIo, "nothing goes to disk on this node (--spill none)");
  fd_.Reset(open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd_.valid() && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = folder_ + "/manta-lineage-XXXXXX";
    fd_.Reset(mkostemp(name.data(), O_CLOEXEC));
    if (fd_.valid()) unlink(name.c_str());
  }
  if (!fd_.valid()) return Failed("keep", folder_);
  end_ = kFirst;
  return {};
}

Status ShelfFile::Pull(std::uint64_t at, void* data, std::uint64_t bytes) const {
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t count =
        pread(fd_.get(), static_cast<std::byte*>(data) + done, bytes - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;
    if (count <= 0) return Failed("read", folder_);
    done += static_cast<std::uint64_t>(count);
  }
  return {};
}

Status ShelfFile::Push(std::uint64_t at, const void* data, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t count =
        pwrite(fd_.get(), static_cast<const std::byte*>(data) + done, bytes - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENOSPC;
    if (count <= 0) return Failed("write", folder_);
    done += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<std::uint64_t> ShelfFile::Write(const Record& record) {
  if (Status s = Open(); !s.ok()) return s;
  Header header;
  header.counts = 1;
  header.inputs = static_cast<std::uint32_t>(record.inputs.size());
  header.mentions = static_cast<std::uint32_t>(record.mentions.size());
  header.plan = record.plan;
  const std::size_t edges = (record.inputs.size() + record.mentions.size()) * sizeof(Edge);
  std::vector<std::byte> bytes(sizeof header + edges + record.spec.size());
  header.bytes = static_cast<std::uint32_t>(bytes.size());
  std::byte* to = bytes.data();
  const auto put = [&to](const void* data, std::size_t size) {
    if (size > 0) std::memcpy(to, data, size);
    to += size;
  };
  put(&header, sizeof header);
  put(record.inputs.data(), record.inputs.size() * sizeof(Edge));
  put(record.mentions.data(), record.mentions.size() * sizeof(Edge));
  put(record.spec.data(), record.spec.size());
  std::uint64_t at = end_;
  if (at % kSegment + bytes.size() > kSegment) at = (at / kSegment + 1) * kSegment;
  const std::uint64_t segment = at / kSegment;
  const std::uint64_t span = (bytes.size() + kSegment - 1) / kSegment;
  const bool begins = segment >= segments_.size() || segments_[segment].span == 0;
  if (begins && !share_.Take(span * kSegment)) {
    return Status(Code::kIo,
                  Cat("cannot keep lineage in '", folder_, "': this node has ", Bytes(share_.all()), " there, ",
                      Bytes(share_.mine()), " of them of this process, and no more than ", Bytes(share_.limit()),
                      " are allowed (Config::spill_bytes, manta start --spill-limit)"));
  }
  if (Status s = Push(at, bytes.data(), bytes.size()); !s.ok()) {  // the next one writes over it
    if (begins) share_.Return(span * kSegment);
    return s;
  }
  for (const std::vector<Edge>* list : {&record.inputs, &record.mentions}) {
    for (const Edge& edge : *list) {
      if (edge.record == 0) continue;
      if (Status s = Keep(edge.record); !s.ok()) {
        if (begins) share_.Return(span * kSegment);
        return s;
      }
    }
  }
  if (segments_.size() <= segment) segments_.resize(segment + 1);
  ++segments_[segment].records;
  if (begins) {
    segments_[segment].span = static_cast<std::uint32_t>(span);
  }
  const std::uint64_t last = end_ / kSegment;
  end_ = at + ((bytes.size() + 7) & ~7ULL);
  // Behind one that is larger than a segment nobody else begins before the next.
  if (bytes.size() > kSegment) end_ = (end_ + kSegment - 1) / kSegment * kSegment;
  if (last != end_ / kSegment && segments_[last].records == 0) GiveBack(last);
  bytes_ += header.bytes;
  return at;
}

Result<ShelfFile::Record> ShelfFile::Read(std::uint64_t at) const {
  Header header;
  if (Status s = Pull(at, &header, sizeof header); !s.ok()) return s;
  const std::uint64_t edges = (static_cast<std::uint64_t>(header.inputs) + header.mentions) * sizeof(Edge);
  if (header.counts == 0 || header.bytes < sizeof header + edges) {
    return Status(Code::kCorrupt, Cat("lineage in '", folder_, "' makes no sense at ", at));
  }
  Record record;
  record.plan = header.plan;
  record.inputs.resize(header.inputs);
  record.mentions.resize(header.mentions);
  record.spec.resize(header.bytes - sizeof header - edges);
  at += sizeof header;
  if (Status s = Pull(at, record.inputs.data(), header.inputs * sizeof(Edge)); !s.ok()) return s;
  at += header.inputs * sizeof(Edge);
  if (Status s = Pull(at, record.mentions.data(), header.mentions * sizeof(Edge)); !s.ok()) return s;
  at += header.mentions * sizeof(Edge);
  if (Status s = Pull(at, record.spec.data(), record.spec.size()); !s.ok()) return s;
  return record;
}

Status ShelfFile::Count(std::uint64_t at, std::int32_t more, Header* header) {
  Header now;
  if (Status s = Pull(at, &now, sizeof now); !s.ok()) return s;
  now.counts += static_cast<std::uint32_t>(more);
  if (header != nullptr) *header = now;
  return Push(at, &now, sizeof now);
}

// A loop: chains are long. What cannot be read is left where it is.
void ShelfFile::Drop(std::uint64_t place, std::vector<Id>* let_go) {
  std::vector<std::uint64_t> dropped{place};
  while (!dropped.empty()) {
    const std::uint64_t at = dropped.back();
    dropped.pop_back();
    Header header;
    if (!Count(at, -1, &header).ok() || header.counts > 0) continue;
    std::vector<Edge> edges(static_cast<std::size_t>(header.inputs) + header.mentions);
    if (!Pull(at + sizeof header, edges.data(), edges.size() * sizeof(Edge)).ok()) continue;
    for (const Edge& edge : edges) {
      if (edge.record != 0) {
        dropped.push_back(edge.record);
      } else {
        let_go->push_back(edge.id);
      }
    }
    bytes_ -= header.bytes;
    if (--segments_[at / kSegment].records == 0 && at / kSegment != end_ / kSegment) GiveBack(at / kSegment);
  }
}

void ShelfFile::GiveBack(std::uint64_t segment) {
  const std::uint64_t bytes = std::exchange(segments_[segment].span, 0) * kSegment;
  if (bytes == 0) return;
  share_.Return(bytes);
  static_cast<void>(fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              static_cast<off_t>(segment * kSegment), static_cast<off_t>(bytes)));
}

}  // namespace manta::owner
