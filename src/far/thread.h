// Thread runs a loop for connections between this process and others on other nodes. Processes that have none do
// without it: it is started with the first.
//
// Threads: Post from any; everything posted runs on the loop's thread, in order. Destroying it Stops it. A thread that
// spins for an answer from the loop takes its Turn: it does the loop's work itself until it gives up, which saves two
// wake-ups for each call to another node. So "the far thread" is the thread that has the turn; there is one at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "types/status.h"

namespace manta::far {

class Thread {
 public:
  static Result<std::unique_ptr<Thread>> Start();
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // Ends the thread after what was posted before; functions that are posted later are dropped with this object. The
  // owner calls this before it destroys the object: functions that still run may reach this object through the owner.
  void Stop();

  void Post(std::function<void()> work);
  [[nodiscard]] base::Loop& loop() { return *loop_; }  // on the far thread only

  // The thread's work, done by another one for a while. False: somebody else is at it.
  class Turn {
   public:
    explicit Turn(Thread* thread);  // none: false
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    explicit operator bool() const { return thread_ != nullptr; }
    // What there is to be done now. Never waits.
    void Work() { thread_->loop_->RunOnce(0); }

   private:
    Thread* thread_;
  };

 private:
  Thread() = default;
  void Run();
  void RunPosted();
  // Whether the thread wakes up when there is something to do.
  void Listen(bool on);

  std::mutex turn_;  // guards the loop and what follows
  std::unique_ptr<base::Loop> loop_;
  bool stopped_ = false;
  std::int64_t sleeps_until_us_ = 0;  // -1: for ever
  base::Fd outer_;                    // the loop's own descriptor, to sleep on
  base::Fd wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  std::thread thread_;
};

}  // namespace manta::far
