#include "control/log_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/failpoint.h"

namespace manta::control {
namespace {

constexpr std::uint64_t kAhead = 1U << 20;           // zeros at a time
constexpr std::size_t kGroupBytes = 8U << 20;        // of one write
constexpr std::size_t kTooBigForAhead = 128U << 10;  // then the file's growth is a small part of the cost
constexpr char kPrefix[] = "log-";

bool WriteAt(int fd, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

}  // namespace

std::string SegmentName(std::uint64_t number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%s%016llx", kPrefix, static_cast<unsigned long long>(number));
  return text.data();
}

Result<std::vector<std::uint64_t>> ListSegments(const std::string& folder) {
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return DiskError(Cat("cannot list ", folder), errno);
  std::vector<std::uint64_t> numbers;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    const std::size_t prefix = sizeof kPrefix - 1;
    if (name.size() != prefix + 16 || name.compare(0, prefix, kPrefix) != 0) continue;
    const std::uint64_t number = std::strtoull(name.c_str() + prefix, nullptr, 16);
    if (SegmentName(number) == name) numbers.push_back(number);
  }
  closedir(dir);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Status SyncFolder(const std::string& folder) {
  const base::Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return DiskError(Cat("cannot sync folder ", folder), errno);
  return {};
}

std::string RoomAt(const std::string& path) {
  struct statvfs info{};
  if (path.empty() || statvfs(path.c_str(), &info) != 0) return {};
  return Cat(" (", Bytes(info.f_bavail * info.f_frsize), " free of ", Bytes(info.f_blocks * info.f_frsize), ")");
}

Status DiskError(const std::string& what, int error, const std::string& path) {
  std::string text = Cat(what, ": ", std::strerror(error));
  const bool full = error == ENOSPC || error == EDQUOT;
  if (full || error == EFBIG) {
    text += Cat(full ? RoomAt(path) + "; make room" : "; raise `ulimit -f`",
                ": nothing acknowledged is lost, and writes go on then");
  }
  return Status(Code::kIo, std::move(text));
}

LogWriter::LogWriter(std::string folder, std::uint64_t segment_bytes)
    : folder_(std::move(folder)), segment_bytes_(segment_bytes) {}

Result<std::unique_ptr<LogWriter>> LogWriter::Start(std::string folder, std::uint64_t number,
                                                    std::uint64_t durable_before, std::uint64_t segment_bytes) {
  std::unique_ptr<LogWriter> writer(new LogWriter(std::move(folder), segment_bytes));
  writer->ready_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!writer->ready_.valid()) return Status(Code::kIo, Cat("cannot make an eventfd: ", std::strerror(errno)));
  writer->number_ = number - 1;
  writer->durable_ = durable_before;
  if (Status status = writer->Roll(); !status.ok()) return status;
  writer->thread_ = std::thread([raw = writer.get()] { raw->Run(); });
  return writer;
}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LogWriter::Add(std::unique_ptr<Pending> pending) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = queue_.empty();
    queue_.push_back(std::move(pending));
  }
  if (was_empty) work_.notify_one();
}

void LogWriter::Wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(ready_.get(), &one, sizeof one);
}

std::vector<std::unique_ptr<Pending>> LogWriter::Take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = read(ready_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

void LogWriter::Run() {
  std::vector<std::unique_ptr<Pending>> group;
  for (;;) {
    group.clear();
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::size_t bytes = 0;
      while (!queue_.empty() && (group.empty() || bytes + queue_.front()->bytes <= kGroupBytes)) {
        bytes += queue_.front()->bytes;
        group.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    const Status status = WriteOut(group);
    for (const auto& pending : group) {
      pending->status = status;
      pending->segment = number_;
    }
    {
      const std::lock_guard lock(mutex_);
      std::move(group.begin(), group.end(), std::back_inserter(finished_));
    }
    Wake();
  }
}

// A segment has its name only once its header is on the disk: one without a valid header is damage, not a crash.
Status LogWriter::Roll() {
  const std::uint64_t number = number_ + 1;
  const std::string name = folder_ + "/" + SegmentName(number);
  const std::string fresh = folder_ + "/log.new";
  base::Fd file(open(fresh.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) return DiskError(Cat("cannot make ", fresh), errno, folder_);
  const std::string header = EncodeSegmentHeader(number, durable_);
  if (!WriteAt(file.get(), header, 0) || fdatasync(file.get()) != 0 || rename(fresh.c_str(), name.c_str()) != 0) {
    const int error = errno;
    unlink(fresh.c_str());
    return DiskError(Cat("cannot start log segment ", name), error, folder_);
  }
  if (Status status = SyncFolder(folder_); !status.ok()) return status;
  if (file_.valid()) {
    // The zeros after the last record are not worth their space; that they stay is no error.
    [[maybe_unused]] const int ignored = ftruncate(file_.get(), static_cast<off_t>(offset_));
  }
  file_ = std::move(file);
  number_ = number;
  offset_ = written_ = header.size();
  return {};
}

void LogWriter::WriteAhead(std::uint64_t end) {
  static const std::string zeros(kAhead + kTooBigForAhead, '\0');
  // Not past the segment's end, except for the record itself.
  const std::uint64_t until = std::max(end, std::min(written_ + kAhead, segment_bytes_));
  // What was written in part is cut off again: a disk that is nearly full may still take the record.
  if (WriteAt(file_.get(), std::string_view(zeros).substr(0, until - written_), written_) ||
      ftruncate(file_.get(), static_cast<off_t>(written_)) != 0) {
    written_ = until;
  }
}

Status LogWriter::Cut(Status why) {
  if (ftruncate(file_.get(), static_cast<off_t>(offset_)) != 0) broken_ = why;
  written_ = offset_;
  return why;
}

Status LogWriter::WriteOut(std::vector<std::unique_ptr<Pending>>& group) {
  if (!broken_.ok()) return broken_;
  if (offset_ >= segment_bytes_) {
    if (Status status = Roll(); !status.ok()) return status;
  }
  buffer_.clear();
  for (const auto& pending : group) {
    pending->offset = offset_ + buffer_.size();
    AppendRecord(&buffer_, number_, pending->offset, pending->batch);
  }
  if (offset_ + buffer_.size() > written_ && buffer_.size() < kTooBigForAhead) WriteAhead(offset_ + buffer_.size());
  if (!WriteAt(file_.get(), buffer_, offset_)) {
    return Cut(DiskError(Cat("cannot write ", Bytes(buffer_.size()), " to the log in ", folder_), errno, folder_));
  }
  if (fdatasync(file_.get()) != 0) {
    broken_ = DiskError(Cat("cannot sync the log in ", folder_, "; restart the control process"), errno);
    return broken_;
  }
  base::Failpoint("control.logged");
  offset_ += buffer_.size();
  written_ = std::max(written_, offset_);
  durable_ = group.back()->batch.sequence;
  if (buffer_.capacity() > 2 * kGroupBytes) buffer_ = {};
  return {};
}

}  // namespace manta::control
