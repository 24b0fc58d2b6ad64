#include "owner/daemon_link.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <span>

namespace manta::owner {

void DaemonLink::Start(std::function<void(wire::Frame&)> on_message, std::function<void(const std::string&)> on_lost) {
  on_message_ = std::move(on_message);
  on_lost_ = std::move(on_lost);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "manta-link");
    Run();
  });
}

void DaemonLink::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

Status DaemonLink::SendBytes(const std::string& bytes, const std::vector<int>& fds) {
  if (lost()) {
    const std::lock_guard lock(mutex_);
    return Status(Code::kUnavailable, why_lost_);
  }
  const std::lock_guard lock(send_mutex_);
  Status sent = wire::SendAll(socket_.get(), std::as_bytes(std::span(bytes)), fds);
  if (!sent.ok() && ends_ && !stopping_.load()) _exit(1);
  return sent;
}

Result<wire::Frame> DaemonLink::Exchange(std::uint64_t call, const std::string& bytes, const std::vector<int>& fds,
                                         std::int64_t timeout_us) {
  {
    const std::lock_guard lock(mutex_);
    waiting_[call];
  }
  const Status sent = SendBytes(bytes, fds);
  std::unique_lock lock(mutex_);
  Waiting& mine = waiting_[call];
  const auto over = [&] { return mine.done || lost() || !sent.ok(); };
  if (timeout_us < 0) {
    answered_.wait(lock, over);
  } else {
    answered_.wait_for(lock, std::chrono::microseconds(timeout_us), over);
  }
  Waiting result = std::move(mine);
  waiting_.erase(call);
  if (result.done) return std::move(result.frame);
  if (!sent.ok()) return sent;
  if (lost()) return Status(Code::kUnavailable, why_lost_);
  return Status(Code::kTimedOut, Cat("the node's daemon did not answer within ", timeout_us / 1000, " ms"));
}

void DaemonLink::Run() {
  wire::FrameReader reader;
  // Not zeroed: a new process would touch all of these pages, and hardly ever uses them.
  constexpr std::size_t kBytes = 256U << 10;
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  const std::span<std::byte> buffer(memory.get(), kBytes);
  for (;;) {
    std::size_t count = 0;
    std::vector<base::Fd> fds;
    bool would_block = false;
    const Status status = wire::Receive(socket_.get(), buffer, &count, &fds, &would_block);
    if (!status.ok()) return Lose(status.message());
    if (would_block) continue;
    if (count == 0) return Lose("the node's daemon (mantad) is gone; start again with Init()");
    reader.Add(buffer.first(count), std::move(fds));
    for (;;) {
      wire::Frame frame;
      Result<bool> whole = reader.Next(&frame);
      if (!whole.ok()) return Lose(whole.status().message());
      if (!*whole) break;
      if (frame.call != 0) {
        const std::lock_guard lock(mutex_);
        const auto it = waiting_.find(frame.call);
        if (it == waiting_.end()) continue;  // its caller gave up
        it->second.done = true;
        it->second.frame = std::move(frame);
        answered_.notify_all();
      } else {
        on_message_(frame);
      }
    }
  }
}

void DaemonLink::Lose(const std::string& why) {
  if (ends_ && !stopping_.load()) _exit(1);
  {
    const std::lock_guard lock(mutex_);
    why_lost_ = why;
    lost_.store(true, std::memory_order_release);
    answered_.notify_all();
  }
  shutdown(socket_.get(), SHUT_RDWR);  // nobody reads it any more: a daemon that still lives is to know
  if (!stopping_.load()) on_lost_(why);
}

Result<store::LentSegment> DaemonLink::Request(std::uint64_t bytes) {
  std::vector<base::Fd> fds;
  wire::SegmentRequest request;
  request.bytes = bytes;
  Result<wire::SegmentLent> lent = Call<wire::SegmentLent>(request, {}, &fds);
  if (!lent.ok()) return lent.status();
  if (fds.size() != 1) return Status(Code::kCorrupt, "a lent segment came without its descriptor");
  store::LentSegment out;
  out.segment = lent->segment;
  out.bytes = lent->bytes;
  out.whole = lent->whole;
  out.fd = std::move(fds[0]);
  return out;
}

Result<store::OpenedSegment> DaemonLink::Open(std::uint32_t segment) {
  std::vector<base::Fd> fds;
  wire::OpenSegment request;
  request.segment = segment;
  Result<wire::SegmentOpened> opened = Call<wire::SegmentOpened>(request, {}, &fds);
  if (!opened.ok()) return opened.status();
  if (fds.size() != 1) return Status(Code::kCorrupt, "an opened segment came without its descriptor");
  store::OpenedSegment out;
  out.segment = opened->segment;
  out.bytes = opened->bytes;
  out.offset = opened->offset;
  out.fd = std::move(fds[0]);
  return out;
}

Result<Place> DaemonLink::Restore(const Id& object) {
  wire::Restore request;
  request.object = object;
  Result<wire::Restored> restored = Call<wire::Restored>(request);
  if (!restored.ok()) return restored.status();
  return restored->place;
}

Result<Place> DaemonLink::Fetch(const Id& object, const Place& place, ProcessId owner) {
  Result<wire::Fetched> fetched = Call<wire::Fetched>(wire::Fetch{object, place, owner});
  if (!fetched.ok()) return fetched.status();
  return fetched->place;
}

void DaemonLink::Free(std::vector<Id> objects, std::vector<Place> places) {
  wire::FreeObjects message;
  message.objects = std::move(objects);
  message.places = std::move(places);
  static_cast<void>(Send(message));  // a daemon that is gone has freed everything
}

void DaemonLink::Return(std::uint32_t segment) {
  wire::SegmentReturn message;
  message.segment = segment;
  static_cast<void>(Send(message));
}

}  // namespace manta::owner
