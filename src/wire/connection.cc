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

Connection::Connection(base::Loop& loop, Stream stream, OnFrame on_frame, OnClose on_close)
    : loop_(loop), stream_(std::move(stream)), on_frame_(std::move(on_frame)), on_close_(std::move(on_close)) {}

Connection::~Connection() {
  *alive_ = false;
  if (watched_) loop_.Unwatch(stream_.fd());
  if (closing_ != 0) loop_.Cancel(closing_);
  if (more_ != 0) loop_.Cancel(more_);
}

Status Connection::Start() {
  const Status status = loop_.Watch(stream_.fd(), EPOLLIN, [this](std::uint32_t events) { OnEvents(events); });
  watched_ = status.ok();
  watching_ = EPOLLIN;
  ReadOn();  // the handshake may have read further than its own bytes
  return status;
}

void Connection::Close(Status why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  why_ = std::move(why);
  outgoing_.clear();
  outgoing_bytes_ = 0;
  if (watched_) loop_.Unwatch(stream_.fd());
  watched_ = false;
  // The peer learns at once; the owner from the loop, because it may be in the middle of anything.
  if (stream_.encrypted()) stream_.tls()->Close();
  shutdown(stream_.fd(), SHUT_RDWR);
  closing_ = loop_.After(0, [this] {
    closing_ = 0;
    const OnClose callback = on_close_;  // which destroys this object
    const Status reason = why_;
    callback(reason);
  });
}

void Connection::CloseAfterSending(Status why) {
  if (state_ != State::kOpen) return;
  if (outgoing_.empty() && !stream_.WantsWrite()) {
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
    if (item.sent == item.bytes.size()) {
      if (stream_.WantsWrite()) WatchFor();
      return;
    }
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
  const IoResult result = stream_.Write(std::as_bytes(std::span(bytes)), fds);
  if (result.state == IoState::kSome) {
    *sent += result.bytes;
    return true;
  }
  if (result.state == IoState::kWouldBlock) return false;
  // A peer that is gone may have left words behind: they are read first, then its close is seen.
  const bool gone = result.state == IoState::kClosed || stream_.error() == EPIPE || stream_.error() == ECONNRESET;
  if (gone && state_ == State::kOpen) {
    *sent += bytes.size();
    return true;
  }
  const Status why = gone ? Status(Code::kUnavailable, "the peer is gone") : stream_.failure();
  Close(Status(why.code(), Cat("cannot send: ", why.message())));
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
    std::vector<base::Fd> fds;
    const IoResult result = stream_.Read(buffer, stream_.encrypted() ? nullptr : &fds);
    if (result.state == IoState::kFailed) {
      Close(stream_.failure());
      return;
    }
    if (result.state == IoState::kWouldBlock) break;
    if (result.state == IoState::kClosed) {
      Close({});
      return;
    }
    const std::size_t count = result.bytes;
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
  ReadOn();
  if (stream_.WantsWrite()) WatchFor();
}

void Connection::ReadOn() {
  if (!stream_.Buffered() || more_ != 0 || state_ != State::kOpen) return;
  more_ = loop_.After(0, [this] {
    more_ = 0;
    ReadNow();
  });
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
  std::size_t none = 0;
  if (outgoing_.empty() && stream_.WantsWrite() && !SendSome({}, {}, &none) && state_ == State::kClosed) return;
  if (outgoing_.empty() && !stream_.WantsWrite() && state_ == State::kLastWords) {
    Close(std::move(why_));
    return;
  }
  WatchFor();
}

void Connection::WatchFor() {
  if (!watched_) return;
  std::uint32_t events = state_ == State::kOpen ? EPOLLIN : 0U;
  if (!outgoing_.empty() || stream_.WantsWrite()) events |= EPOLLOUT;
  if (events == watching_) return;
  watching_ = events;
  loop_.Change(stream_.fd(), events);
}

}  // namespace manta::wire
