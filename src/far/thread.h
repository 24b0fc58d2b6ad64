// Thread runs a loop for connections between this process and others on other nodes. Processes that have none do
// without it: it is started with the first.
//
// Threads: Post from any; everything posted runs on the loop's thread, in order. Destroying it ends the thread after
// what was posted before.
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

  void Post(std::function<void()> work);
  [[nodiscard]] base::Loop& loop() { return *loop_; }  // on its own thread only

 private:
  Thread() = default;
  void RunPosted();

  std::unique_ptr<base::Loop> loop_;
  base::Fd wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  std::thread thread_;
};

}  // namespace manta::far
