// SegmentMemory makes the files that segments live in: no name anywhere, gone with their last user.
//
// Where the process may mount (root), in a private, detached tmpfs with huge pages: first touch runs at
// memory speed instead of 1.5 GB/s, and giving 1 GB back takes milliseconds. Else in a memfd, sealed
// against resizing (which a tmpfs file cannot be).
// Threads: const methods from any.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "types/status.h"

namespace manta::store {

class SegmentMemory {
 public:
  // `huge`: try for huge pages.
  explicit SegmentMemory(bool huge);

  // A zeroed file of `bytes` bytes, writable. Huge pages only if `bytes` is a multiple of 2 MiB.
  [[nodiscard]] Result<base::Fd> Make(std::uint64_t bytes) const;
  [[nodiscard]] bool huge() const { return mount_.valid(); }

  // The same file, for readers.
  static Result<base::Fd> ReadOnly(int fd);
  // Gives the pages of [from, to) back to the machine, though others still map them: they read zeros.
  static void GiveBack(int fd, std::uint64_t from, std::uint64_t to);

 private:
  base::Fd mount_;
};

// What the machine, or the control group this process is in, has left. For error messages and for refusing
// a segment that would only be killed for.
[[nodiscard]] std::uint64_t AvailableMemory();

// kInvalid: a store of so many bytes is more than the machine, or too little to be of use.
Status CheckStoreBytes(std::uint64_t bytes);

}  // namespace manta::store
