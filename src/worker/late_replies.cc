#include "worker/late_replies.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <utility>

namespace manta::worker {
namespace {

// A message costs both ends some 10 µs of system calls: this bounds them to a tenth of a core.
constexpr std::chrono::microseconds kPaceUs{100};

}  // namespace

void LateReplies::Add(const std::shared_ptr<FarCaller>& caller) {
  if (caller->late.exchange(true, std::memory_order_acq_rel)) return;
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  callers_.push_back(caller);
  if (thread_.joinable()) return wake_.notify_one();
  // The user's signal handlers run on the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LateReplies::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void LateReplies::Run() {
  pthread_setname_np(pthread_self(), "manta-late");
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !callers_.empty(); });
    if (stop_) return;
    const std::vector<std::shared_ptr<FarCaller>> callers = std::exchange(callers_, {});
    lock.unlock();
    for (const std::shared_ptr<FarCaller>& caller : callers) {
      caller->late.store(false, std::memory_order_release);  // before: an answer that comes meanwhile adds it again
      send_(*caller);
    }
    std::this_thread::sleep_for(kPaceUs);
    lock.lock();
  }
}

}  // namespace manta::worker
