// ShelfFile is where the records of shelved calls go (rebuild.cc) that found no room in memory: a file without a name
// in the node's spill folder, which goes with its process. A record has what its call needs to run again: the spec, and
// what the arguments name.
//
// A record is counted by the entry that has it, if that is in memory, and by the records whose calls need its result.
// The last count takes it along, and the counts that it had itself. The counts are in the file, too: memory is needed
// for the segments only (a word for each megabyte), however many records there are. A segment of which all records are
// gone is given back to the disk; a record lies in one, or has several for itself.
//
// Calls block on the file. Guarded by EntryTable::mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "shm/disk_share.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::internal {
struct Plan;
}

namespace manta::owner {

class ShelfFile {
 public:
  struct Edge {
    Id id;
    std::uint64_t record = 0;  // 0: it has none, and whoever wrote this one keeps it in memory
  };
  struct Record {
    const internal::Plan* plan = nullptr;
    std::vector<Edge> inputs;
    std::vector<Edge> mentions;
    std::vector<std::byte> spec;
  };

  // Empty: there is no such place. Segments are counted whole.
  explicit ShelfFile(std::string folder, shm::DiskShare share = shm::DiskShare())
      : folder_(std::move(folder)), share_(share) {}

  // Where it is; counted once, as are now, once more, the records of its edges. kIo: the folder is missing or
  // full, or the limit is reached; with what to do. Nothing has changed then.
  Result<std::uint64_t> Write(const Record& record);
  [[nodiscard]] Result<Record> Read(std::uint64_t at) const;
  Status Keep(std::uint64_t at) { return Count(at, 1, nullptr); }
  // `let_go`: edges without a record of those that are gone now.
  void Drop(std::uint64_t at, std::vector<Id>* let_go);

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of records that are there
  [[nodiscard]] std::uint64_t on_disk() const { return share_.mine(); }

 private:
  struct Header {
    std::uint32_t bytes = 0;  // of it all
    std::uint32_t counts = 0;
    std::uint32_t inputs = 0;
    std::uint32_t mentions = 0;
    const internal::Plan* plan = nullptr;
  };
  struct Segment {
    std::uint32_t records = 0;  // that begin in it
    std::uint32_t span = 0;     // segments on disk from here on, for a record that is larger; 0: none
  };
  Status Open();
  Status Count(std::uint64_t at, std::int32_t more, Header* header);
  void GiveBack(std::uint64_t segment);
  Status Pull(std::uint64_t at, void* data, std::uint64_t bytes) const;
  Status Push(std::uint64_t at, const void* data, std::uint64_t bytes);

  const std::string folder_;
  shm::DiskShare share_;
  base::Fd fd_;
  std::uint64_t end_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace manta::owner
