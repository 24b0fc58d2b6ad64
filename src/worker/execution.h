// Execution runs one call: finds its code, gives it its arguments, and sends what it returned or threw to
// whoever asked. One per running call, on the thread that runs it; calls run in place nest.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manta/internal/core.h"
#include "manta/internal/embed.h"
#include "owner/owner.h"
#include "shm/arena.h"
#include "shm/lane.h"
#include "shm/queue.h"
#include "shm/spec.h"
#include "worker/actor_journal.h"
#include "worker/far_callers.h"

namespace manta::worker {

// One owner's queue that this worker serves, and its lane back.
struct Served {
  ProcessId owner = kNoProcess;
  std::uint64_t lease = 0;  // 0: an actor's caller
  bool once = false;        // the lease ends with the first call
  Resources need;
  std::shared_ptr<shm::Arena> arena;
  shm::QueueWorker queue;
  std::uint32_t claims = 0;
  std::int64_t counted_us = 0;  // when the last round of claims was full
  shm::LaneWriter lane;
  std::mutex lane_mutex;              // only actors with several threads contend
  shm::Doorbell* bell = nullptr;      // the owner's
  std::shared_ptr<FarCaller> far;     // it is on another node
  ProcessId stored_for = kNoProcess;  // who owns what is stored for it, as this node knows it
  bool reruns = true;                 // its calls may be made again: an actor keeps the answers
  // Calls until the next one is timed. Not each: the clock costs as much as a short call. Atomic, because an actor's
  // threads share it; a hint that orders nothing.
  std::atomic<std::uint32_t> untimed{0};
};

// The actor of this worker.
struct ActorSelf {
  Id id;
  wire::ActorOptions options;
  NodeNumber home = 0;
  void* self = nullptr;
  void (*destroy)(void*) = nullptr;
  void (*save)(void*, std::vector<std::byte>*) = nullptr;
  void (*load)(void**, std::span<const std::byte>) = nullptr;
  std::string class_name;
  Resources need;
  std::uint32_t epoch = 0;                // restarts
  std::unique_ptr<ActorJournal> journal;  // none: nothing outlives this process
  std::function<void()> copy;             // the journal, to its home or the head. None: it is not wanted
  bool serial = true;
  internal::ActorStep step = nullptr;  // not null: calls may end later than their trampolines
};

class Execution final : public internal::Invocation {
 public:
  // Answers go through `served`; with nullptr, straight to this process's own entry.
  Execution(owner::Owner& owner, Served* served, ActorSelf* actor) : owner_(owner), served_(served), actor_(actor) {}
  ~Execution() override;

  void Run(const std::byte* spec, std::uint64_t available);
  // Runs an actor's constructor; a failure is returned instead of sent.
  Failure Construct(const std::byte* spec, std::uint64_t available);
  // Runs a call of the actor's journal, which gets the answer; *failed: it threw. Not ok: it could not run.
  Failure Repeat(const std::byte* spec, std::uint64_t available, bool* failed);

  // For actors with a step (see manta/internal/embed.h).
  void SetActorStep(internal::ActorStep step) { actor_->step = step; }
  void Defer() { deferred_ = true; }
  void NotCompared() { compared_ = false; }
  void EndReturn() {
    if (open_) FinishReturn(false);
  }
  [[nodiscard]] bool deferred() const { return deferred_; }
  // After Run left the call deferred: the rest of it.
  void Resume(internal::Trampoline rest);
  Served* served() { return served_; }
  shm::QueueWorker::Task task;  // whose end is told to the queue; for deferred calls

  // The call asked for the end of this process: it gets no answer, and its queue is not told that it is done.
  [[nodiscard]] const std::optional<internal::WorkerEnd>& end() const { return end_; }

  // The call that runs on this thread, or nullptr.
  static Execution* Current();
  [[nodiscard]] bool cancel_requested() const;
  [[nodiscard]] bool tree_cancelled() const;  // … and all that it has started
  [[nodiscard]] const std::string& label() const { return *label_; }
  [[nodiscard]] const Id& id() const { return header_.id; }

  // Invocation
  internal::View Next(KeepAlive* keep) override;
  std::int64_t NextList() override;
  std::byte* Return(std::uint32_t index, std::size_t size) override;
  [[nodiscard]] std::uint32_t returns() const override {
    return (header_.flags & shm::SpecHeader::kWhole) != 0 ? 0xffffffffU : header_.returns;
  }

 private:
  Status Open(const std::byte* spec, std::uint64_t available, internal::Trampoline* trampoline);
  // nullptr on success.
  std::unique_ptr<Failure> Invoke(internal::Trampoline trampoline, bool* retryable);
  std::unique_ptr<Failure> Caught(bool* retryable);
  std::unique_ptr<Failure> Exited(const internal::WorkerEnd& end);
  // False: the call was answered, because it ran before.
  bool Admit();
  std::unique_ptr<Failure> Record(const std::byte* spec, bool* retryable);
  void FinishReturn(bool last);
  // Returns when the record of the call is where it outlives this node.
  void CopyRecord();
  void ReplyContained();
  // For ReplyHeader::run; 0: this call is not timed.
  [[nodiscard]] std::uint16_t RunTime(std::uint8_t flags);
  void Send(shm::ReplyKind kind, std::uint8_t flags, std::uint32_t index, std::span<const std::byte> payload);
  void ReplyFailure(const Failure& failure, bool retryable);

  owner::Owner& owner_;
  Served* served_;
  ActorSelf* actor_;
  Execution* outer_ = nullptr;
  shm::SpecHeader header_;
  shm::SpecReader reader_;
  const std::string* label_ = nullptr;
  bool constructing_ = false;
  bool repeating_ = false;  // a call of the journal: nobody is answered
  bool recorded_ = false;   // in the journal
  bool deferred_ = false;
  std::optional<internal::WorkerEnd> end_;
  std::int64_t began_ns_ = 0;  // 0: nobody wants to know

  // The return value being written.
  bool open_ = false;
  bool stored_ = false;
  bool compared_ = true;  // when the call is repeated
  std::uint32_t index_ = 0;
  std::size_t size_ = 0;
  std::vector<std::byte> scratch_;
  std::byte small_[256];
  store::Allocation room_;
  internal::RefScope* scope_ = nullptr;
};

}  // namespace manta::worker
