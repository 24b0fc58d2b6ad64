#include "wire/connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace manta::wire {
namespace {

// More than a Unix socket's buffers hold: whatever was sent before a read began is read by it, and
// a peer that never stops sending still lets the others have their turn.
constexpr std::size_t kReadPerTurn = 4U << 20;
constexpr std::size_t kReadBuffer = 256U << 10;
constexpr std::size_t kMaxSpareFds = 64;

}  // namespace

Connection::Connection(base::Loop& loop, base::Fd socket, OnFrame on_frame, OnClose on_close)
    : loop_(loop), socket_(std::move(socket)), on_frame_(std::move(on_frame)), on_close_(std::move(on_close)) {}

Connection::~Connection() {
  *alive_ = false;
  if (watched_) loop_.Unwatch(socket_.get());
  if (closing_ != 0) loop_.Cancel(closing_);
}

Status Connection::Start() {
  const Status status = loop_.Watch(socket_.get(), EPOLLIN, [this](std::uint32_t events) { OnEvents(events); });
  watched_ = status.ok();
  watching_ = EPOLLIN;
  return status;
}

void Connection::Close(Status why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  why_ = std::move(why);
  outgoing_.clear();
  outgoing_bytes_ = 0;
  if (watched_) loop_.Unwatch(socket_.get());
  watched_ = false;
  // The peer learns at once; the owner from the loop, because it may be in the middle of anything.
  shutdown(socket_.get(), SHUT_RDWR);
  closing_ = loop_.After(0, [this] {
    closing_ = 0;
    const OnClose callback = on_close_;  // which destroys this object
    const Status reason = why_;
    callback(reason);
  });
}

void Connection::CloseAfterSending(Status why) {
  if (state_ != State::kOpen) return;
  if (outgoing_.empty()) {
    Close(std::move(why));
    return;
  }
  state_ = State::kLastWords;
  why_ = std::move(why);
  WatchFor();
}

void Connection::ReadNow() {
  if (state_ == State::kOpen) Read();
}

void Connection::SendFrame(std::string bytes, std::initializer_list<int> fds) {
  Outgoing item;
  item.bytes = std::move(bytes);
  if (outgoing_.empty()) {
    if (!SendSome(item.bytes, std::span(fds.begin(), fds.size()), &item.sent) && !open()) return;
    if (item.sent == item.bytes.size()) return;
  }
  // Descriptors go with the first byte; those of a frame that waits may be closed meanwhile by their owner.
  for (const int fd : fds) {
    if (item.sent > 0) break;
    base::Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!copy.valid()) {
      Close(Status(Code::kIo, Cat("cannot pass a descriptor on: ", std::strerror(errno), "; raise `ulimit -n`")));
      return;
    }
    item.fds.push_back(std::move(copy));
  }
  if (outgoing_bytes_ + item.bytes.size() > kMaxOutgoing) {
    Close(Status(Code::kUnavailable, Cat("the peer does not read: ", Bytes(outgoing_bytes_), " wait for it")));
    return;
  }
  outgoing_bytes_ += item.bytes.size();
  outgoing_.push_back(std::move(item));
  WatchFor();
}

bool Connection::SendSome(std::string_view bytes, std::span<const int> fds, std::size_t* sent) {
  const std::ptrdiff_t count = SendOnce(socket_.get(), std::as_bytes(std::span(bytes)), fds, MSG_DONTWAIT);
  if (count >= 0) {
    *sent += static_cast<std::size_t>(count);
    return true;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
  // A peer that is gone may have left words behind: they are read first, then its close is seen.
  if ((errno == EPIPE || errno == ECONNRESET) && state_ == State::kOpen) {
    *sent += bytes.size();
    return true;
  }
  Close(Status(Code::kUnavailable, Cat("cannot send: ", std::strerror(errno))));
  return false;
}

void Connection::OnEvents(std::uint32_t events) {
  const std::shared_ptr<bool> alive = alive_;
  if ((events & EPOLLOUT) != 0) Write();
  if (!*alive || state_ == State::kClosed) return;
  if (state_ == State::kLastWords) {
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) Close(std::move(why_));
    return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read();
}

void Connection::Read() {
  const std::shared_ptr<bool> alive = alive_;
  // Contents live for one turn. Per thread, because a process may have several loops; on the heap, because a
  // library's thread-local memory is taken from every thread's stack.
  thread_local const auto buffer_owner = std::make_unique_for_overwrite<std::byte[]>(kReadBuffer);
  const std::span<std::byte> buffer(buffer_owner.get(), kReadBuffer);
  std::size_t total = 0;
  while (state_ == State::kOpen && total < kReadPerTurn) {
    std::size_t count = 0;
    bool would_block = false;
    std::vector<base::Fd> fds;
    const Status status = Receive(socket_.get(), buffer, &count, &fds, &would_block);
    if (!status.ok()) {
      Close(status);
      return;
    }
    if (would_block) return;
    if (count == 0) {
      Close({});
      return;
    }
    total += count;
    spare_fds_ += fds.size();
    reader_.Add(buffer.first(count), std::move(fds));
    for (;;) {
      Frame frame;
      const Result<bool> next = reader_.Next(&frame);
      if (!next.ok()) {
        Close(next.status());
        return;
      }
      if (!next.value()) break;
      spare_fds_ -= frame.fds.size();
      on_frame_(frame);
      if (!*alive || state_ != State::kOpen) return;
    }
    if (spare_fds_ > kMaxSpareFds) {
      Close(Status(Code::kCorrupt, "descriptors without a message"));
      return;
    }
  }
}

void Connection::Write() {
  while (!outgoing_.empty() && state_ != State::kClosed) {
    Outgoing& item = outgoing_.front();
    std::vector<int> fds;
    fds.reserve(item.fds.size());
    for (const base::Fd& fd : item.fds) fds.push_back(fd.get());
    if (!SendSome(std::string_view(item.bytes).substr(item.sent), fds, &item.sent)) break;
    item.fds.clear();
    if (item.sent < item.bytes.size()) break;
    outgoing_bytes_ -= item.bytes.size();
    outgoing_.pop_front();
  }
  if (state_ == State::kClosed) return;
  if (outgoing_.empty() && state_ == State::kLastWords) {
    Close(std::move(why_));
    return;
  }
  WatchFor();
}

void Connection::WatchFor() {
  if (!watched_) return;
  std::uint32_t events = state_ == State::kOpen ? EPOLLIN : 0U;
  if (!outgoing_.empty()) events |= EPOLLOUT;
  if (events == watching_) return;
  watching_ = events;
  loop_.Change(socket_.get(), events);
}

}  // namespace manta::wire
