#include "interrupt.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace manta::python {
namespace {

constexpr std::chrono::milliseconds kLook{5};
constexpr int kPatience = 100;  // looks without a call before the watcher sleeps

struct Running {
  const internal::Invocation* call = nullptr;  // nullptr: the slot is free
  pthread_t thread{};
  unsigned long ident = 0;
  bool told = false;
  std::uint64_t number = 0;  // calls begin in this order; a thread that waits may run another call inside its own
};

// Never destroyed: its thread runs until the process ends.
struct Watcher {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Running> slots;
  std::vector<std::size_t> free;
  std::size_t running = 0;
  std::uint64_t begun = 0;
  bool asleep = false;
  bool started = false;
  pthread_t main{};

  void Watch() {
    pthread_setname_np(pthread_self(), "manta-cancel");
    std::unique_lock lock(mutex);
    std::uint64_t seen = 0;
    int quiet = 0;
    for (;;) {
      if (running == 0 && quiet >= kPatience) {
        asleep = true;
        wake.wait(lock, [this] { return running > 0; });
        asleep = false;
      } else {
        wake.wait_for(lock, kLook);
      }
      quiet = begun == seen ? quiet + 1 : 0;
      seen = begun;
      for (Running& one : slots) {
        if (one.call == nullptr || one.told || !internal::IsCancelled(*one.call)) continue;
        one.told = true;
        if (pthread_equal(one.thread, main) != 0) {
          pthread_kill(one.thread, SIGINT);
        } else {
          // Whoever ends a call takes our mutex without the GIL: no deadlock.
          const PyGILState_STATE state = PyGILState_Ensure();
          PyThreadState_SetAsyncExc(one.ident, PyTuple_GET_ITEM(hooks.errors, static_cast<int>(Code::kCancelled)));
          PyGILState_Release(state);
        }
      }
    }
  }
};
Watcher& TheWatcher() {
  static auto* watcher = new Watcher();
  return *watcher;
}

}  // namespace

Interruptible::Interruptible(const internal::Invocation& call) {
  Watcher& watcher = TheWatcher();
  const std::lock_guard lock(watcher.mutex);
  if (!watcher.started) {  // the first call is on the worker's main thread
    watcher.started = true;
    watcher.main = pthread_self();
    std::thread([&watcher] { watcher.Watch(); }).detach();
  }
  if (watcher.free.empty()) {
    slot_ = watcher.slots.size();
    watcher.slots.emplace_back();
  } else {
    slot_ = watcher.free.back();
    watcher.free.pop_back();
  }
  watcher.slots[slot_] = {&call, pthread_self(), PyThread_get_thread_ident(), false, ++watcher.begun};
  ++watcher.running;
  if (watcher.asleep) watcher.wake.notify_one();
}

bool OwnCallCancelled() {
  Watcher& watcher = TheWatcher();
  const NoGil free;  // the watcher may want the GIL
  const std::lock_guard lock(watcher.mutex);
  const Running* own = nullptr;
  for (const Running& one : watcher.slots) {
    if (one.call == nullptr || pthread_equal(one.thread, pthread_self()) == 0) continue;
    if (own == nullptr || one.number > own->number) own = &one;
  }
  return own != nullptr && internal::IsCancelled(*own->call);
}

bool Interruptible::End() {
  Watcher& watcher = TheWatcher();
  ended_ = true;
  std::unique_lock lock(watcher.mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    const NoGil free;  // the watcher may want the GIL
    lock.lock();
  }
  const bool told = watcher.slots[slot_].told;
  watcher.slots[slot_].call = nullptr;
  watcher.free.push_back(slot_);
  --watcher.running;
  lock.unlock();
  if (!told) return false;
  // The interrupt may have come too late for this call; it must not hit the next.
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), nullptr);
  if (PyErr_CheckSignals() != 0) PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return true;
}

Interruptible::~Interruptible() {
  if (ended_) return;
  Watcher& watcher = TheWatcher();
  const std::lock_guard lock(watcher.mutex);
  watcher.slots[slot_].call = nullptr;
  watcher.free.push_back(slot_);
  --watcher.running;
}

}  // namespace manta::python
