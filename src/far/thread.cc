#include "far/thread.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "types/text.h"

namespace manta::far {

Result<std::unique_ptr<Thread>> Thread::Start() {
  std::unique_ptr<Thread> made(new Thread());
  Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
  if (!loop.ok()) return loop.status();
  made->loop_ = std::move(*loop);
  made->wake_ = base::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->wake_.valid()) {
    return Status(Code::kOutOfMemory, Cat("no descriptor for a thread's mail: ", std::strerror(errno)));
  }
  Thread* self = made.get();
  if (Status s = made->loop_->Watch(made->wake_.get(), EPOLLIN, [self](std::uint32_t) { self->RunPosted(); }); !s.ok())
    return s;
  made->outer_ = base::Fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event ready{};
  ready.events = EPOLLIN;
  if (!made->outer_.valid() || epoll_ctl(made->outer_.get(), EPOLL_CTL_ADD, made->loop_->fd(), &ready) != 0) {
    return Status(Code::kOutOfMemory, Cat("no descriptor for a thread to sleep on: ", std::strerror(errno)));
  }
  // The user's signal handlers run on the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  made->thread_ = std::thread([self] {
    pthread_setname_np(pthread_self(), "manta-far");
    self->Run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

Thread::~Thread() { Stop(); }

void Thread::Stop() {
  if (!thread_.joinable()) return;
  Post([this] { stopped_ = true; });
  thread_.join();
  const std::lock_guard lock(turn_);  // whoever did our work last has left
}

void Thread::Run() {
  for (;;) {
    int wait_ms = 0;
    {
      const std::lock_guard lock(turn_);
      loop_->RunOnce(0);
      if (stopped_) return;
      wait_ms = loop_->WaitMillis();
      sleeps_until_us_ = wait_ms < 0 ? -1 : base::NowMicros() + std::int64_t{wait_ms} * 1000;
    }
    epoll_event event{};
    static_cast<void>(epoll_wait(outer_.get(), &event, 1, wait_ms));
  }
}

void Thread::Listen(bool on) {
  epoll_event event{};
  event.events = on ? std::uint32_t{EPOLLIN} : 0U;
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, loop_->fd(), &event);
}

Thread::Turn::Turn(Thread* thread) : thread_(thread != nullptr && thread->turn_.try_lock() ? thread : nullptr) {
  if (thread_ != nullptr) thread_->Listen(false);
}

Thread::Turn::~Turn() {
  if (thread_ == nullptr) return;
  thread_->Listen(true);
  // A timer that we have set, and that the thread does not know of.
  const int wait_ms = thread_->loop_->WaitMillis();
  if (thread_->stopped_ ||
      (wait_ms >= 0 && (thread_->sleeps_until_us_ < 0 ||
                        base::NowMicros() + std::int64_t{wait_ms} * 1000 < thread_->sleeps_until_us_))) {
    const std::uint64_t one = 1;
    static_cast<void>(write(thread_->wake_.get(), &one, sizeof one));
  }
  thread_->turn_.unlock();
}

void Thread::Post(std::function<void()> work) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(work));
  }
  const std::uint64_t one = 1;
  if (first) static_cast<void>(write(wake_.get(), &one, sizeof one));
}

void Thread::RunPosted() {
  std::uint64_t count = 0;
  static_cast<void>(read(wake_.get(), &count, sizeof count));
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (const std::function<void()>& one : work) one();
}

}  // namespace manta::far
