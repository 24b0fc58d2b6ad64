// DaemonLink is a process's connection to its node's daemon: one-way messages, calls with an answer,
// and a thread that hands every other message to the process.
//
// Threads: Send and Call from any thread except the link's own (a Call there would wait for itself).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "store/client.h"
#include "types/status.h"
#include "wire/frame.h"
#include "wire/messages.h"

namespace manta::owner {

class DaemonLink final : public store::KeeperLink {
 public:
  explicit DaemonLink(base::Fd socket) : socket_(std::move(socket)) {}
  ~DaemonLink() override { Stop(); }
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  // `on_message` and `on_lost` run on the link's thread. on_lost: the daemon is gone.
  void Start(std::function<void(wire::Frame&)> on_message, std::function<void(const std::string&)> on_lost);
  // Instead of on_lost: the process ends at once, whichever thread notices first. For workers: a task that met the loss
  // as an error could otherwise still answer its caller on another node, as if it had failed by itself.
  void EndWithDaemon() { ends_ = true; }
  void Stop();

  template <typename M>
  Status Send(const M& message, const std::vector<int>& fds = {}) {
    return SendBytes(wire::EncodeFrame(message, 0, fds.size()), fds);
  }
  Status SendBytes(const std::string& bytes, const std::vector<int>& fds);  // one or more frames

  // `timeout_us` < 0: waits as long as the daemon lives.
  template <typename Reply, typename M>
  Result<Reply> Call(const M& message, const std::vector<int>& fds = {}, std::vector<base::Fd>* got = nullptr,
                     std::int64_t timeout_us = -1) {
    const std::uint64_t call = next_call_.fetch_add(1);
    Result<wire::Frame> frame = Exchange(call, wire::EncodeFrame(message, call, fds.size()), fds, timeout_us);
    if (!frame.ok()) return frame.status();
    if (frame->kind == wire::Kind::kFailed) {
      Result<wire::Failed> failed = frame->template As<wire::Failed>();
      if (!failed.ok()) return failed.status();
      return Status(failed->failure.code, failed->failure.message);
    }
    if (got != nullptr) *got = std::move(frame->fds);
    return frame->template As<Reply>();
  }

  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_acquire); }

  // KeeperLink
  Result<store::LentSegment> Request(std::uint64_t bytes) override;
  Result<store::OpenedSegment> Open(std::uint32_t segment) override;
  Result<Place> Restore(const Id& object) override;
  Result<Place> Fetch(const Id& object, const Place& place, ProcessId owner) override;
  void Free(std::vector<Id> objects, std::vector<Place> places) override;
  void Return(std::uint32_t segment) override;

 private:
  struct Waiting {
    bool done = false;
    wire::Frame frame;
  };
  Result<wire::Frame> Exchange(std::uint64_t call, const std::string& bytes, const std::vector<int>& fds,
                               std::int64_t timeout_us);
  void Run();
  void Lose(const std::string& why);

  base::Fd socket_;
  std::mutex send_mutex_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable answered_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::string why_lost_;
  std::atomic<std::uint64_t> next_call_{1};
  std::atomic<bool> lost_{false};
  std::atomic<bool> stopping_{false};
  std::function<void(wire::Frame&)> on_message_;
  std::function<void(const std::string&)> on_lost_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace manta::owner
