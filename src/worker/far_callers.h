// FarCallers are the owners on other nodes that this worker serves, each over a connection of its own. What an owner
// sends is laid out in this process's memory exactly as a local owner would lay it out in its arena, a queue and specs,
// so the worker's main loop serves both alike; the replies go straight to the connection. Arguments that are in other
// nodes' stores are asked for when a call comes (FetchAhead), not when the worker gets to it.
//
// Threads: the far thread listens, reads calls and fills queues; the worker's threads claim, run and reply. A queue has
// one writer (the far thread), replies are under the caller's mutex.
//
// The end of a lease loses nothing: the worker gives back what it has not begun and says goodbye; the owner answers
// that it sends no more; what was on its way in between goes back, too; then the connection closes, and only then is
// the lease returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "far/far_link.h"
#include "far/thread.h"
#include "owner/owner.h"
#include "owner/task_log.h"
#include "shm/arena.h"
#include "shm/lane.h"
#include "shm/queue.h"
#include "wire/listener.h"

namespace manta::worker {

class FarCaller {
 public:
  struct Memory {  // of this process, for all its far callers
    std::shared_ptr<shm::Arena> arena;
    std::shared_ptr<shm::ChunkAllocator> chunks;
    std::uint64_t queue = 0;
    std::uint64_t lane = 0;
  };
  // `host` is this process. `wake` rings the worker's main thread. `prompt`: no answer waits for the next one, so that
  // when this process dies only the call that it was in is not answered.
  FarCaller(owner::Owner& host, ProcessId owner, const Memory& memory, bool prompt, std::function<void()> wake);
  ~FarCaller() { log_.Clear(); }
  FarCaller(const FarCaller&) = delete;
  FarCaller& operator=(const FarCaller&) = delete;

  // ---- the worker's threads ----
  void Reply(const shm::ReplyHeader& header, std::span<const std::byte> payload);
  void Started(std::uint64_t token);
  // Answers that have not left: are there enough of them for a message, or must none wait?
  enum class Pending { kNone, kSome, kDue };
  [[nodiscard]] Pending pending();
  // All answers that were given so far: a mark for SendUpTo.
  [[nodiscard]] std::uint64_t Given();
  // Sends the answers before the mark, but for those that have left already.
  void SendUpTo(std::uint64_t mark);
  // Gives back what has not begun and says goodbye. `done` is called on the far thread when the connection is closed.
  void Return(std::function<void()> done);

  [[nodiscard]] ProcessId owner() const { return owner_; }
  // Nothing comes any more.
  [[nodiscard]] bool closed() const { return over_.load(std::memory_order_acquire); }
  [[nodiscard]] const std::shared_ptr<shm::Arena>& arena() const { return arena_; }
  [[nodiscard]] std::uint64_t queue() const { return queue_; }
  [[nodiscard]] std::uint64_t lane() const { return lane_; }
  std::atomic<bool> late{false};  // LateReplies has it on its list

  // ---- the far thread ----
  void Connected(std::shared_ptr<far::Link> link);
  void OnFrame(wire::Frame& frame);
  void OnClosed();

 private:
  void Take(std::string_view specs);
  // Adds the call's arguments that are in other nodes' stores.
  void Needs(const std::byte* spec, std::uint64_t bytes, wire::FetchAhead* ahead) const;
  void PushWaiting();
  void Reap();
  // With the mutex held.
  void GiveBack();
  void SendReplies() { SendFirst(replies_.size()); }
  void SendFirst(std::size_t bytes);

  owner::Owner& host_;
  const ProcessId owner_;
  const std::shared_ptr<shm::Arena> arena_;
  const std::uint64_t queue_;
  const std::uint64_t lane_;
  const bool prompt_;
  const std::function<void()> wake_;
  std::atomic<bool> over_{false};
  // The far thread's own.
  std::shared_ptr<shm::ChunkAllocator> chunks_;
  owner::TaskLog log_;
  std::uint64_t reaped_ = 0;  // position up to which specs are dropped

  std::mutex mutex_;  // guards what follows
  shm::QueueOwner ring_;
  std::deque<std::uint64_t> waiting_;    // specs for which the ring has no room
  std::vector<std::uint64_t> unneeded_;  // specs that never got there
  std::shared_ptr<far::Link> link_;
  std::string replies_;     // that have not left
  std::uint64_t left_ = 0;  // bytes of those that have
  bool returning_ = false;
  bool closed_ = false;
  std::function<void()> done_;
};

class FarCallers {
 public:
  explicit FarCallers(owner::Owner& owner) : owner_(owner) {}

  // Where this worker listens; starts to if it does not yet.
  Result<std::string> Listen();
  // A caller that will come and show `pass`.
  Result<std::shared_ptr<FarCaller>> Expect(std::uint64_t pass, ProcessId owner, bool prompt);

 private:
  void Accept(wire::Link link);

  owner::Owner& owner_;
  std::shared_ptr<shm::Arena> arena_;
  std::shared_ptr<shm::ChunkAllocator> chunks_ = std::make_shared<shm::ChunkAllocator>();
  far::Thread* thread_ = nullptr;
  std::string address_;
  std::unique_ptr<wire::Listener> listener_;                                // the far thread's
  std::mutex mutex_;                                                        // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<FarCaller>> expected_;  // by pass
};

}  // namespace manta::worker
