#include "far/thread.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

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
  // The user's signal handlers run on the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  made->thread_ = std::thread([self] {
    pthread_setname_np(pthread_self(), "manta-far");
    self->loop_->Run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

Thread::~Thread() {
  Post([this] { loop_->Stop(); });
  if (thread_.joinable()) thread_.join();
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
