#include "base/loop.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace manta::base {

Result<std::unique_ptr<Loop>> Loop::Create() {
  std::unique_ptr<Loop> loop(new Loop());
  loop->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_.valid()) return Status(Code::kIo, Cat("cannot make an event loop: ", std::strerror(errno)));
  return loop;
}

Status Loop::Watch(int fd, std::uint32_t events, OnEvents callback) {
  const std::uint64_t id = next_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Status(Code::kIo, Cat("cannot watch descriptor ", fd, ": ", std::strerror(errno)));
  }
  by_fd_[fd] = id;
  watched_[id] = std::make_shared<Watched>(Watched{fd, std::move(callback)});
  return {};
}

void Loop::Change(int fd, std::uint32_t events) {
  const auto it = by_fd_.find(fd);
  if (it == by_fd_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = it->second;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::Unwatch(int fd) {
  const auto it = by_fd_.find(fd);
  if (it == by_fd_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(it->second);
  by_fd_.erase(it);
}

Loop::TimerId Loop::After(std::int64_t micros, OnTime callback) {
  const TimerId id = next_++;
  timers_.emplace(NowMicros() + micros, Timer{id, 0, std::move(callback)});
  return id;
}

Loop::TimerId Loop::Every(std::int64_t micros, OnTime callback) {
  const TimerId id = next_++;
  timers_.emplace(NowMicros() + micros, Timer{id, std::max<std::int64_t>(micros, 1), std::move(callback)});
  return id;
}

void Loop::Cancel(TimerId timer) {
  const auto it =
      std::find_if(timers_.begin(), timers_.end(), [&](const auto& entry) { return entry.second.id == timer; });
  if (it != timers_.end()) timers_.erase(it);
}

void Loop::Run() {
  stopped_ = false;
  while (!stopped_) RunOnce(-1);
}

void Loop::RunOnce(std::int64_t timeout_us) {
  Poll(TimeoutMillis(timeout_us));
  RunTimers();
  if (after_round_) after_round_();
}

void Loop::Poll(int timeout_ms) {
  // Room for all of them: a Drain must not leave a ready one for the next round.
  std::vector<epoll_event> events(std::max<std::size_t>(watched_.size(), 1));
  const auto wait = [&](int ms) {
    return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), ms);
  };
  int count = 0;
  while (timeout_ms != 0 && expected_until_ != 0 && count == 0) {
    if (NowMicros() >= expected_until_) expected_until_ = 0;
    count = wait(0);
  }
  if (count == 0) count = wait(timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto it = watched_.find(event.data.u64);
    if (it == watched_.end()) continue;  // unwatched earlier in this round
    const std::shared_ptr<Watched> keep = it->second;
    keep->callback(event.events);
  }
}

void Loop::Expect(std::int64_t micros) { expected_until_ = micros > 0 ? NowMicros() + micros : 0; }

void Loop::RunTimers() {
  // Only what is due now: a timer that a callback sets for "at once" waits for the next round.
  const std::int64_t now = NowMicros();
  const std::uint64_t newest = next_;
  for (auto it = timers_.begin(); it != timers_.end() && it->first <= now;) {
    if (it->second.id >= newest) {
      ++it;
      continue;
    }
    Timer timer = std::move(it->second);
    timers_.erase(it);
    const OnTime callback = timer.callback;
    // A repeating timer is back in the table while it runs, so that it can cancel itself.
    if (timer.every > 0) timers_.emplace(now + timer.every, std::move(timer));
    callback();
    it = timers_.begin();
  }
}

int Loop::TimeoutMillis(std::int64_t limit_us) const {
  std::int64_t wait = limit_us;
  if (!timers_.empty()) {
    const std::int64_t due = std::max<std::int64_t>(timers_.begin()->first - NowMicros(), 0);
    wait = wait < 0 ? due : std::min(wait, due);
  }
  if (wait < 0) return -1;
  return static_cast<int>(std::min<std::int64_t>((wait + 999) / 1000, 1000000));
}

}  // namespace manta::base
