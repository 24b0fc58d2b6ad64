// Mailbox takes calls from any thread to the loop's.
//
// Post from any thread; what was posted runs in the loop's thread, in order. Destroyed in the loop's thread, after
// everybody who posts is gone; what was not run by then never is.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"

namespace manta::node {

class Mailbox {
 public:
  static Result<std::unique_ptr<Mailbox>> Create(base::Loop& loop) {
    std::unique_ptr<Mailbox> box(new Mailbox(loop));
    if (!box->event_.valid()) return Status(Code::kIo, "cannot make an eventfd: out of descriptors; raise `ulimit -n`");
    Status status = loop.Watch(box->event_.get(), EPOLLIN, [raw = box.get()](std::uint32_t) { raw->Run(); });
    if (!status.ok()) return status;
    return box;
  }
  ~Mailbox() {
    if (event_.valid()) loop_.Unwatch(event_.get());
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Post(std::function<void()> call) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      wake = calls_.empty();
      calls_.push_back(std::move(call));
    }
    const std::uint64_t one = 1;
    if (wake) (void)!write(event_.get(), &one, sizeof one);
  }

 private:
  explicit Mailbox(base::Loop& loop) : loop_(loop), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  void Run() {
    std::uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof count);
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex_);
      calls.swap(calls_);
    }
    for (const auto& call : calls) call();
  }

  base::Loop& loop_;
  base::Fd event_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
};

}  // namespace manta::node
