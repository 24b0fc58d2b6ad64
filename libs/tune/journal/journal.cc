#include "tune/journal/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tune/journal/crc32c.h"

namespace manta::tune::journal {
namespace {

constexpr char kHeader[17] = "manta tune 0001\n";
constexpr std::size_t kHeaderBytes = 16;
constexpr std::uint32_t kMagic = 0x314A544D;  // "MTJ1"
constexpr std::size_t kPrefix = 28;           // magic, length, crc, number, synced
constexpr std::size_t kChecked = 12;          // the crc covers what follows this offset, and the length
constexpr std::uint64_t kMostBytes = 1ULL << 30;

template <class T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void Store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

std::string ErrorText() { return std::string(std::strerror(errno)); }  // NOLINT(concurrency-mt-unsafe)

struct Found {
  bool whole = false;
  std::uint32_t length = 0;
  std::uint64_t number = 0;
  std::uint64_t synced = 0;
};

Found RecordAt(std::string_view file, std::size_t offset) {
  Found found;
  if (file.size() - offset < kPrefix) return found;
  const char* at = file.data() + offset;
  if (Load<std::uint32_t>(at) != kMagic) return found;
  found.length = Load<std::uint32_t>(at + 4);
  if (found.length > file.size() - offset - kPrefix) return found;
  const std::uint32_t crc = Crc32c(file.substr(offset + 4, 4));
  found.whole =
      Crc32c(file.substr(offset + kChecked, kPrefix - kChecked + found.length), crc) == Load<std::uint32_t>(at + 8);
  found.number = Load<std::uint64_t>(at + 12);
  found.synced = Load<std::uint64_t>(at + 20);
  return found;
}

std::string Contents(int fd, const std::string& path) {
  std::string bytes;
  char part[1 << 16];
  for (;;) {
    const ssize_t got = pread(fd, part, sizeof part, static_cast<off_t>(bytes.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw JournalError("cannot read journal " + path + ": " + ErrorText());
    if (got == 0) return bytes;
    bytes.append(part, static_cast<std::size_t>(got));
  }
}

// Whether an intact record follows the damage at `offset` that was appended when the damaged part was on disk.
bool DamagedInTheMiddle(std::string_view file, std::size_t offset) {
  std::string magic(4, '\0');
  Store(magic.data(), kMagic);
  for (std::size_t next = file.find(magic, offset + 1); next != std::string_view::npos;
       next = file.find(magic, next + 1)) {
    const Found found = RecordAt(file, next);
    if (found.whole && found.synced > offset) return true;
  }
  return false;
}

// Passes the records on. Returns the number of intact bytes; `next` gets the number of the next record.
std::size_t Scan(std::string_view file, const std::string& path, const Journal::Reader& read, std::uint64_t* next) {
  if (file.size() < kHeaderBytes) {
    throw JournalError("journal " + path + " has " + std::to_string(file.size()) +
                       " bytes, less than its header of 16: it was never complete. Remove the folder and start again.");
  }
  if (file.substr(0, kHeaderBytes) != std::string_view(kHeader, kHeaderBytes)) {
    throw JournalError("journal " + path +
                       " begins with a header that this version of Manta does not know. Restore it with the version "
                       "that wrote it.");
  }
  std::size_t offset = kHeaderBytes;
  std::uint64_t number = 0;
  while (offset < file.size()) {
    const Found found = RecordAt(file, offset);
    if (!found.whole || found.number != number) {
      if (found.whole || DamagedInTheMiddle(file, offset)) {
        throw JournalError("journal " + path + " is damaged at offset " + std::to_string(offset) + " (record " +
                           std::to_string(number) + " of a file of " + std::to_string(file.size()) +
                           " bytes), and intact records follow. Restore the file from a copy.");
      }
      break;  // torn at the end
    }
    read(number, file.substr(offset + kPrefix, found.length));
    offset += kPrefix + found.length;
    ++number;
  }
  *next = number;
  return offset;
}

}  // namespace

std::unique_ptr<Journal> Journal::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) throw JournalError("cannot create journal " + path + ": " + ErrorText());
  std::unique_ptr<Journal> journal(new Journal(path, fd));
  (void)flock(fd, LOCK_EX | LOCK_NB);
  if (pwrite(fd, kHeader, kHeaderBytes, 0) != static_cast<ssize_t>(kHeaderBytes)) {
    throw JournalError("cannot write journal " + path + ": " + ErrorText());
  }
  journal->written_ = kHeaderBytes;
  return journal;
}

std::unique_ptr<Journal> Journal::Open(const std::string& path, const Reader& read) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw JournalError("cannot open journal " + path + ": " + ErrorText());
  std::unique_ptr<Journal> journal(new Journal(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    throw JournalError("journal " + path + " is in use by another process. Stop that run before it is restored.");
  }
  const std::string file = Contents(fd, path);
  const std::size_t intact = Scan(file, path, read, &journal->next_);
  if (intact < file.size() && ftruncate(fd, static_cast<off_t>(intact)) != 0) {
    throw JournalError("cannot cut the torn tail of journal " + path + " at offset " + std::to_string(intact) + ": " +
                       ErrorText());
  }
  journal->written_ = intact;
  journal->Sync();
  return journal;
}

void Journal::Read(const std::string& path, const Reader& read) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw JournalError("cannot open journal " + path + ": " + ErrorText());
  const Journal closes(path, fd);
  std::uint64_t next = 0;
  const std::string file = Contents(fd, path);
  (void)Scan(file, path, read, &next);
}

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

std::uint64_t Journal::Append(std::string_view record) {
  if (record.size() > kMostBytes) {
    throw JournalError("a record of " + std::to_string(record.size()) + " bytes is too large for journal " + path_ +
                       "; the limit is 1 GiB. Report smaller metrics.");
  }
  const std::size_t at = buffer_.size();
  buffer_.resize(at + kPrefix);
  buffer_.append(record);
  char* prefix = buffer_.data() + at;
  Store(prefix, kMagic);
  Store(prefix + 4, static_cast<std::uint32_t>(record.size()));
  Store(prefix + 12, next_);
  Store(prefix + 20, synced_.load());
  const std::string_view all(prefix, kPrefix + record.size());
  Store(prefix + 8, Crc32c(all.substr(kChecked), Crc32c(all.substr(4, 4))));
  return next_++;
}

bool Journal::Commit() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t put = pwrite(fd_, buffer_.data() + done, buffer_.size() - done, static_cast<off_t>(written_.load()));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int reason = put == 0 ? ENOSPC : errno;
      buffer_.erase(0, done);
      if (reason != ENOSPC && reason != EDQUOT && reason != EFBIG) {
        errno = reason;
        throw JournalError("cannot write journal " + path_ + ": " + ErrorText());
      }
      struct statvfs space{};
      const bool known = fstatvfs(fd_, &space) == 0;
      errno = reason;
      why_ =
          "the disk of " + path_ + " takes no more (" + ErrorText() + "): " + std::to_string(buffer_.size()) +
          " bytes are needed, " +
          (known ? std::to_string(static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize) : "an unknown number") +
          " are free. Free space; the run continues by itself.";
      return false;
    }
    done += static_cast<std::size_t>(put);
    written_ += static_cast<std::uint64_t>(put);
  }
  buffer_.clear();
  return true;
}

void Journal::Sync() {
  const std::uint64_t written = written_.load();
  if (written == synced_.load()) return;
  if (fdatasync(fd_) == 0) synced_ = written;
}

}  // namespace manta::tune::journal
