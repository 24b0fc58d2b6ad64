// SpillFiles keeps objects on disk that found no room in memory. Files have no name (O_TMPFILE, or unlinked at
// once), so nothing stays behind, however the daemon ends. Objects are appended to a file until it is
// large, so a hundred thousand small ones do not take as many descriptors; the space of those that go is
// given back by punching holes.
// Not thread-safe; the calls block on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "shm/disk_share.h"
#include "types/status.h"

namespace manta::store {

class SpillFiles {
 public:
  struct File {
    base::Fd fd;
    std::uint64_t end = 0;
  };
  // Where an object's bytes are: behind a page for a segment's header, so that the piece can be mapped as a segment
  // (keeper_disk.cc). The file goes with its last piece.
  struct Piece {
    std::shared_ptr<File> file;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };

  // An empty folder: no spilling.
  SpillFiles(std::string folder, shm::DiskShare share) : folder_(std::move(folder)), share_(share) {}

  // kInvalid: no file can be made in `folder`. Told before it is needed, in the middle of somebody's work.
  static Status Check(const std::string& folder);

  [[nodiscard]] bool enabled() const { return !folder_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const { return share_.mine(); }
  [[nodiscard]] const std::string& folder() const { return folder_; }

  // kIo: folder missing, disk full, or over the limit; with what to do. Nothing is kept then.
  Result<Piece> Write(const std::byte* data, std::uint64_t length);
  static Status Read(const Piece& piece, std::byte* data);
  // A file of its own with `bytes` bytes of zeros, which the disk has set aside. `bytes` includes the header.
  Result<Piece> Make(std::uint64_t bytes);
  void Drop(Piece& piece);

 private:
  Status Open();

  std::string folder_;
  shm::DiskShare share_;
  std::shared_ptr<File> current_;
};

}  // namespace manta::store
