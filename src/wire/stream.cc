#include "wire/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/clock.h"
#include "wire/frame.h"

namespace manta::wire {

Stream::Stream(base::Fd socket, std::unique_ptr<TlsSession> tls) : socket_(std::move(socket)), tls_(std::move(tls)) {
  if (!socket_.valid()) return;
  const int flags = fcntl(socket_.get(), F_GETFL);
  if ((flags & O_NONBLOCK) == 0) fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK);
}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  Close();
  socket_ = std::move(other.socket_);
  tls_ = std::move(other.tls_);
  error_ = other.error_;
  return *this;
}

void Stream::Close() {
  if (tls_ && socket_.valid()) tls_->Close();
  tls_.reset();
  socket_.Reset(-1);
}

IoResult Stream::Read(std::span<std::byte> into, std::vector<base::Fd>* fds) {
  if (tls_) return tls_->Read(into);
  if (fds == nullptr) {
    for (;;) {
      const ssize_t got = recv(socket_.get(), into.data(), into.size(), 0);
      if (got > 0 || into.empty()) return {IoState::kSome, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
      if (got == 0) return {IoState::kClosed, 0};
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoState::kWouldBlock, 0};
      error_ = errno;
      return {IoState::kFailed, 0};
    }
  }
  std::size_t count = 0;
  bool would_block = false;
  const Status status = Receive(socket_.get(), into, &count, fds, &would_block);
  if (!status.ok()) {
    error_ = status.code() == Code::kIo ? EMFILE : errno;  // descriptors were lost on the way
    return {IoState::kFailed, 0};
  }
  if (would_block) return {IoState::kWouldBlock, 0};
  return count > 0 ? IoResult{IoState::kSome, count} : IoResult{IoState::kClosed, 0};
}

IoResult Stream::Write(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (tls_) {
    if (!fds.empty()) {
      error_ = EOPNOTSUPP;
      return {IoState::kFailed, 0};
    }
    return tls_->Write(bytes);
  }
  const std::ptrdiff_t sent = SendOnce(socket_.get(), bytes, fds, MSG_DONTWAIT);
  if (sent >= 0) return {IoState::kSome, static_cast<std::size_t>(sent)};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoState::kWouldBlock, 0};
  error_ = errno;
  return {IoState::kFailed, 0};
}

Status Stream::failure() const {
  if (tls_ && error_ == 0) return Status(Code::kUnavailable, Cat("the encrypted connection failed: ", tls_->failure()));
  const Code code = error_ == EMFILE || error_ == ENFILE || error_ == ENOMEM ? Code::kIo : Code::kUnavailable;
  return Status(code, Cat("the connection failed: ", std::strerror(error_)));
}

bool WaitFor(int fd, short events, std::int64_t deadline_us) {
  for (;;) {
    int timeout = -1;
    if (deadline_us >= 0) {
      const std::int64_t left = std::max<std::int64_t>(deadline_us - base::NowMicros(), 0);
      timeout = static_cast<int>(std::min<std::int64_t>((left + 999) / 1000, INT_MAX));
    }
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, timeout);
    if (ready > 0) return true;
    if (ready == 0 && deadline_us >= 0 && base::NowMicros() >= deadline_us) return false;
  }
}

namespace {

std::int64_t Deadline(std::int64_t timeout_us) { return timeout_us < 0 ? -1 : base::NowMicros() + timeout_us; }

Status TooLate(const char* what, std::int64_t timeout_us) {
  return Status(Code::kTimedOut, Cat("the peer did not ", what, " within ", timeout_us / 1000, " ms"));
}

}  // namespace

Status Stream::WriteAll(std::span<const std::byte> bytes, std::int64_t timeout_us) {
  const std::int64_t deadline = Deadline(timeout_us);
  while (!bytes.empty() || WantsWrite()) {
    const IoResult result = Write(bytes);
    if (result.state == IoState::kSome) {
      bytes = bytes.subspan(result.bytes);
      continue;
    }
    if (result.state == IoState::kFailed) return failure();
    if (result.state == IoState::kClosed) return Status(Code::kUnavailable, "the peer closed the connection");
    if (!WaitFor(fd(), POLLOUT, deadline)) return TooLate("read", timeout_us);
  }
  return {};
}

Status Stream::ReadAll(std::span<std::byte> into, std::int64_t timeout_us) {
  const std::int64_t deadline = Deadline(timeout_us);
  while (!into.empty()) {
    const IoResult result = Read(into);
    if (result.state == IoState::kSome) {
      into = into.subspan(result.bytes);
      continue;
    }
    if (result.state == IoState::kFailed) return failure();
    if (result.state == IoState::kClosed) return Status(Code::kUnavailable, "the peer closed the connection");
    if (!WaitFor(fd(), POLLIN, deadline)) return TooLate("answer", timeout_us);
  }
  return {};
}

Result<std::size_t> Stream::ReadSome(std::span<std::byte> into, std::int64_t timeout_us) {
  const std::int64_t deadline = Deadline(timeout_us);
  for (;;) {
    const IoResult result = Read(into);
    if (result.state == IoState::kSome) return result.bytes;
    if (result.state == IoState::kFailed) return failure();
    if (result.state == IoState::kClosed) return std::size_t{0};
    if (!WaitFor(fd(), POLLIN, deadline)) return TooLate("answer", timeout_us);
  }
}

}  // namespace manta::wire
