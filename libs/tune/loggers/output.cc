#include "tune/loggers/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace manta::tune::loggers {

Output::~Output() {
  try {
    (void)Flush();
  } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch): a destructor has nobody to tell
  }
  Close();
}

void Output::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool Output::Flush() {
  if (buffer_.empty()) return true;
  if (fd_ < 0) fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  std::size_t done = 0;
  while (fd_ >= 0 && done < buffer_.size()) {
    const ssize_t put = write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) break;
    done += static_cast<std::size_t>(put);
  }
  const int reason = errno;
  const bool all = done == buffer_.size();
  buffer_.erase(0, done);
  if (all) return true;
  why_ = "cannot write " + path_ + ": " + std::strerror(reason);  // NOLINT(concurrency-mt-unsafe)
  if (reason != ENOSPC && reason != EDQUOT && reason != EFBIG) throw std::runtime_error(why_);
  why_ += " (" + std::to_string(buffer_.size()) + " bytes wait). Free space; the run continues by itself.";
  return false;
}

}  // namespace manta::tune::loggers
