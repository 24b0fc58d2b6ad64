// Loop waits for many descriptors and timers in one thread and calls back when something happens.
//
// Threads: one; every method and every callback runs in the thread that calls Run. Lifetimes: a
// callback may unwatch and cancel anything, itself included; a callback already fetched for a
// descriptor that was unwatched in the same round is not called (numbers of closed descriptors are
// reused at once). Without timers an idle loop sleeps for ever: it costs nothing.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "types/status.h"

namespace manta::base {

class Loop {
 public:
  using OnEvents = std::function<void(std::uint32_t events)>;
  using OnTime = std::function<void()>;
  using TimerId = std::uint64_t;  // 0 names no timer

  static Result<std::unique_ptr<Loop>> Create();

  // `events` as in epoll_ctl (EPOLLIN, EPOLLOUT; level-triggered). The descriptor stays the caller's,
  // who unwatches it before closing it.
  Status Watch(int fd, std::uint32_t events, OnEvents callback);
  void Change(int fd, std::uint32_t events);
  void Unwatch(int fd);

  TimerId After(std::int64_t micros, OnTime callback);
  TimerId Every(std::int64_t micros, OnTime callback);
  void Cancel(TimerId timer);

  // Called after each round of callbacks, before the loop sleeps. May call Drain.
  void AfterRound(OnTime callback) { after_round_ = std::move(callback); }

  // Rounds until Stop.
  void Run();
  void Stop() { stopped_ = true; }
  // One round: waits up to `timeout_us` (-1: for ever), calls back, runs due timers.
  void RunOnce(std::int64_t timeout_us);
  // One more round over every descriptor that is ready now, without waiting and without timers:
  // whatever anybody had sent before this call has been seen when it returns.
  void Drain() { Poll(0); }

  // Something will come within so long, sooner than a sleep and a wake would take: until then the loop looks for it and
  // does not sleep. 0: it has come.
  void Expect(std::int64_t micros);

  // For those who wait elsewhere: readable when a round has something to do, apart from timers; and how long until the
  // next of these, -1: there is none.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] int WaitMillis() const { return TimeoutMillis(-1); }

 private:
  struct Watched {
    int fd = -1;
    OnEvents callback;
  };
  struct Timer {
    TimerId id = 0;
    std::int64_t every = 0;  // 0: once
    OnTime callback;
  };

  Loop() = default;
  void Poll(int timeout_ms);
  void RunTimers();
  [[nodiscard]] int TimeoutMillis(std::int64_t limit_us) const;

  Fd epoll_;
  bool stopped_ = false;
  std::uint64_t next_ = 1;
  std::unordered_map<int, std::uint64_t> by_fd_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Watched>> watched_;
  std::multimap<std::int64_t, Timer> timers_;  // by due time
  OnTime after_round_;
  std::int64_t expected_until_ = 0;
};

}  // namespace manta::base
