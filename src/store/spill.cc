#include "store/spill.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "store/segment.h"
#include "types/text.h"

namespace manta::store {
namespace {
constexpr std::uint64_t kFileBytes = 1ULL << 30;  // a new file after this many
constexpr std::uint64_t kStep = 64ULL << 20;      // of one write or read
constexpr std::uint64_t kBlock = 4096;            // what a hole is rounded to; pieces start at one
constexpr std::byte kNoHeader[kPage] = {};        // until the piece is mapped
std::uint64_t RoundUp(std::uint64_t value) { return (value + kBlock - 1) / kBlock * kBlock; }

base::Fd MakeFile(const std::string& folder) {
  base::Fd fd(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid() && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = folder + "/manta-spill-XXXXXX";
    fd.Reset(mkostemp(name.data(), O_CLOEXEC));
    if (fd.valid()) unlink(name.c_str());
  }
  return fd;
}

}  // namespace

Status SpillFiles::Check(const std::string& folder) {
  if (MakeFile(folder).valid()) return {};
  return {Code::kInvalid, Cat("the spill folder '", folder, "' cannot be written: ", std::strerror(errno))};
}

Status SpillFiles::Open() {
  if (current_ != nullptr && current_->end < kFileBytes) return {};
  base::Fd fd = MakeFile(folder_);
  if (!fd.valid()) {
    return {Code::kIo,
            Cat("cannot make a spill file in '", folder_, "': ", std::strerror(errno),
                errno == EMFILE ? "; raise `ulimit -n`" : "; set Config::spill_folder to a writable folder")};
  }
  current_ = std::make_shared<File>();
  current_->fd = std::move(fd);
  return {};
}

Result<SpillFiles::Piece> SpillFiles::Write(const std::byte* data, std::uint64_t length) {
  if (!enabled()) return Status(Code::kIo, "spilling is off; set Config::spill_folder");
  if (Status opened = Open(); !opened.ok()) return opened;
  if (!share_.Take(length)) {
    return Status(Code::kIo, Cat("cannot spill ", Bytes(length), " to '", folder_, "': ", Bytes(share_.all()), " of ",
                                 Bytes(share_.limit()), " allowed are on disk already; raise Config::spill_bytes"));
  }
  Piece piece{current_, current_->end, length};
  for (std::uint64_t done = 0; done < kPage + length;) {
    const bool header = done < kPage;
    const std::byte* from = header ? kNoHeader + done : data + (done - kPage);
    const std::uint64_t left = header ? kPage - done : kPage + length - done;
    const ssize_t wrote =
        pwrite(current_->fd.get(), from, std::min(kStep, left), static_cast<off_t>(piece.offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int error = wrote < 0 ? errno : ENOSPC;
      (void)ftruncate(current_->fd.get(), static_cast<off_t>(piece.offset));  // what was written of it
      share_.Return(length);
      return Status(Code::kIo,
                    Cat("cannot spill ", Bytes(length), " to '", folder_, "': ", std::strerror(error),
                        error == ENOSPC ? "; free disk space or set Config::spill_folder to a larger disk" : ""));
    }
    done += static_cast<std::uint64_t>(wrote);
  }
  current_->end = RoundUp(piece.offset + kPage + length);
  return piece;
}

Status SpillFiles::Read(const Piece& piece, std::byte* data) {
  for (std::uint64_t done = 0; done < piece.length;) {
    const ssize_t got = pread(piece.file->fd.get(), data + done, std::min(kStep, piece.length - done),
                              static_cast<off_t>(piece.offset + kPage + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return {Code::kIo, Cat("cannot read ", Bytes(piece.length), " back from a spill file: ",
                             got < 0 ? std::strerror(errno) : "it is shorter than it was")};
    }
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<SpillFiles::Piece> SpillFiles::Make(std::uint64_t bytes) {
  if (!share_.Take(bytes)) {
    return Status(Code::kIo,
                  Cat("cannot make a file of ", Bytes(bytes), " in '", folder_, "': ", Bytes(share_.all()), " of ",
                      Bytes(share_.limit()), " allowed are on disk already; raise Config::spill_bytes"));
  }
  auto file = std::make_shared<File>();
  file->fd = MakeFile(folder_);
  const int error = file->fd.valid() ? posix_fallocate(file->fd.get(), 0, static_cast<off_t>(bytes)) : errno;
  if (error != 0) {
    share_.Return(bytes);
    return Status(Code::kIo, Cat("cannot make a file of ", Bytes(bytes), " in '", folder_, "': ", std::strerror(error),
                                 "; free disk space or set Config::spill_folder to a larger disk"));
  }
  file->end = bytes;
  return Piece{std::move(file), 0, bytes};
}

void SpillFiles::Drop(Piece& piece) {
  if (piece.file == nullptr) return;
  share_.Return(piece.length);
  if (piece.file.use_count() > 1 && piece.length > 0) {
    (void)fallocate(piece.file->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset),
                    static_cast<off_t>(RoundUp(kPage + piece.length)));
  }
  piece = Piece{};
  if (share_.mine() == 0) current_.reset();
}

}  // namespace manta::store
