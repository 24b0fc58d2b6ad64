// A file of lineage: pieces of the streams of one node's owners (lineage/record.h), in checksummed blocks, in the order
// in which the daemon took them. A job has a file for each node and each run (lineage/folder.h).
//
// The first thing that is not a valid block is the end of what was written before a crash, if nothing valid follows;
// else it is damage: the reader says where, and goes on with the next valid block, in streams that are harmed with
// their next chapter.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "lineage/record.h"
#include "shm/lineage_ring.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::lineage {

struct FileHeader {
  static constexpr std::uint64_t kMagic = 0x314e494c41544e4dULL;  // "MNTALIN1"
  std::uint64_t magic = kMagic;
  Id job;
  std::uint64_t program = 0;   // hash of the build that ran: code is named by its place in it
  std::uint64_t checksum = 0;  // of the above
};
static_assert(sizeof(FileHeader) == 40);

struct BlockHeader {
  static constexpr std::uint32_t kMagic = 0x4b424c4dU;  // "MLBK"
  static constexpr std::uint32_t kChapter = 1;          // it begins one
  std::uint32_t magic = kMagic;
  std::uint32_t flags = 0;
  std::uint32_t bytes = 0;  // behind this header; the next block is at the next multiple of 8
  std::uint32_t unused = 0;
  ProcessId owner = kNoProcess;
  std::uint64_t position = 0;  // in its stream
  std::uint64_t checksum = 0;  // of the above, the block's place in the file, and what follows
};
static_assert(sizeof(BlockHeader) == 40);

// Appends to a file. Nothing is on disk before fdatasync.
class FileWriter {
 public:
  FileWriter() = default;
  static Result<FileWriter> Create(const std::string& path, const Id& job, std::uint64_t program);

  // A whole block or, if the disk does not take it, none.
  Status Append(ProcessId owner, const shm::LineagePiece& piece);
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  base::Fd fd_;
  std::uint64_t size_ = 0;
};

struct Damage {
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // until the next valid block
};

struct FileSummary {
  Id job;
  std::uint64_t program = 0;
  std::uint64_t bytes = 0;        // of the file
  std::uint64_t blocks = 0;       // valid
  std::uint64_t torn = 0;         // bytes at the end that were not written whole
  std::uint64_t lost_pieces = 0;  // valid, but of a stream whose beginning is damaged
  std::vector<Damage> damages;
};

// Tells what stands in a file, stream by stream in the order of the blocks. `begin(owner)` is called before the records
// of a block. kCorrupt if it is no such file at all, kIo if it cannot be read.
class BlockSink : public Sink {
 public:
  virtual void OnBlock(ProcessId owner) = 0;
};
// `begun`, if there is one, is filled before the first record is told, with what the file is of.
Result<FileSummary> ReadFile(const std::string& path, BlockSink& sink, FileHeader* begun = nullptr);

[[nodiscard]] std::uint64_t Checksum(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace manta::lineage
