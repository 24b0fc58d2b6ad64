// LateReplies sends answers to callers on other nodes while the worker's threads run the next calls. A worker whose
// next call is ready leaves its answers with the caller, so that many short calls share one message; but the next call
// may be long, and no answer may wait for it. So a thread of this class sends what was left: the first answer at once,
// later ones at most every kPaceUs, which is the batch.
//
// Threads: Add from any. `send` is called on the thread of this class, which starts with the first Add.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/far_callers.h"

namespace manta::worker {

class LateReplies {
 public:
  using Send = std::function<void(FarCaller& caller)>;
  explicit LateReplies(Send send) : send_(std::move(send)) {}
  ~LateReplies() { Stop(); }
  LateReplies(const LateReplies&) = delete;
  LateReplies& operator=(const LateReplies&) = delete;

  // The caller has answers that nobody else will send soon. Cheap if it was added before and has not been served.
  void Add(const std::shared_ptr<FarCaller>& caller);
  // Ends the thread; answers that are left are not sent by it.
  void Stop();

 private:
  void Run();

  const Send send_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<std::shared_ptr<FarCaller>> callers_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace manta::worker
