#include "far/far_link.h"

#include <sys/epoll.h>

#include <array>
#include <utility>

namespace manta::far {
namespace {
constexpr std::size_t kReadBytes = 256U << 10;
}

void Link::Start(OnFrame on_frame, OnClosed on_closed) {
  on_frame_ = std::move(on_frame);
  on_closed_ = std::move(on_closed);
  const Status watched = thread_.loop().Watch(
      stream_.fd(), EPOLLIN, [self = shared_from_this()](std::uint32_t events) { self->OnEvents(events); });
  if (!watched.ok()) {
    thread_.Post([self = shared_from_this(), watched] { self->Finish(watched); });
    return;
  }
  WatchFor();
  if (stream_.Buffered()) Read();
}

void Link::Send(std::string frames) {
  bool watch = false;
  {
    const std::lock_guard lock(mutex_);
    if (!open() || closing_) return;
    const bool waiting = !outgoing_.empty();
    if (waiting) {
      outgoing_ += frames;
    } else {
      outgoing_ = std::move(frames);
      sent_ = 0;
      if (!WriteLocked()) outgoing_.clear();  // the far thread finds out by itself
    }
    outgoing_bytes_.store(outgoing_.size() - sent_, std::memory_order_relaxed);
    watch = !waiting && (!outgoing_.empty() || stream_.WantsWrite());
  }
  if (watch) thread_.Post([self = shared_from_this()] { self->WatchFor(); });
}

void Link::CloseAfterSending() {
  thread_.Post([self = shared_from_this()] {
    bool now = false;
    {
      const std::lock_guard lock(self->mutex_);
      self->closing_ = true;
      now = self->outgoing_.empty() && !self->stream_.WantsWrite();
    }
    if (now) self->Finish({});
  });
}

void Link::Close() {
  thread_.Post([self = shared_from_this()] {
    if (!self->open()) return;
    self->Read();
    self->Finish({});
  });
}

void Link::CloseLater(std::int64_t micros) {
  thread_.Post([weak = weak_from_this(), micros, &thread = thread_] {
    thread.loop().After(micros, [weak] {
      if (const std::shared_ptr<Link> link = weak.lock()) link->Close();
    });
  });
}

bool Link::WriteLocked() {
  while (sent_ < outgoing_.size() || stream_.WantsWrite()) {
    const wire::IoResult result = stream_.Write(std::as_bytes(std::span(outgoing_)).subspan(sent_));
    if (result.state == wire::IoState::kWouldBlock) break;
    if (result.state != wire::IoState::kSome) return false;
    sent_ += result.bytes;
  }
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
  }
  return true;
}

void Link::OnEvents(std::uint32_t events) {
  const std::shared_ptr<Link> self = shared_from_this();
  if ((events & EPOLLOUT) != 0) {
    bool failed = false;
    bool done = false;
    {
      const std::lock_guard lock(mutex_);
      failed = !WriteLocked();
      outgoing_bytes_.store(outgoing_.size() - sent_, std::memory_order_relaxed);
      done = closing_ && outgoing_.empty() && !stream_.WantsWrite();
    }
    if (failed) return Finish(stream_.failure());
    if (done) return Finish({});
    WatchFor();
  }
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) Read();
}

void Link::Read() {
  const std::shared_ptr<Link> self = shared_from_this();
  thread_local std::array<std::byte, kReadBytes> buffer;
  while (open()) {
    wire::IoResult result;
    bool more = false;
    Status failure;
    {
      const std::lock_guard lock(mutex_);
      result = stream_.Read(buffer);
      more = result.state == wire::IoState::kSome && (result.bytes == buffer.size() || stream_.Buffered());
      if (result.state == wire::IoState::kFailed) failure = stream_.failure();
    }
    if (result.state == wire::IoState::kWouldBlock) return;
    if (result.state != wire::IoState::kSome) return Finish(failure);
    reader_.Add(std::span(buffer).first(result.bytes), {});
    wire::Frame frame;
    for (;;) {
      Result<bool> next = reader_.Next(&frame);
      if (!next.ok()) return Finish(next.status());
      if (!*next) break;
      on_frame_(frame);
      if (!open()) return;
    }
    if (!more) return;
  }
}

void Link::WatchFor() {
  if (!open()) return;
  bool writes = false;
  {
    const std::lock_guard lock(mutex_);
    writes = !outgoing_.empty() || stream_.WantsWrite();
  }
  if (writes == watching_writes_) return;
  watching_writes_ = writes;
  thread_.loop().Change(stream_.fd(), writes ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Link::Finish(const Status& why) {
  if (!open_.exchange(false)) return;
  {
    const std::lock_guard lock(mutex_);
    thread_.loop().Unwatch(stream_.fd());
    stream_.Close();
    outgoing_.clear();
  }
  on_frame_ = nullptr;
  const OnClosed closed = std::exchange(on_closed_, nullptr);
  if (closed) closed(why);
}

}  // namespace manta::far
