// The Worker is the callee's half of the engine: a process that serves one lease at a time, or one actor
// for life. Its main thread claims calls and runs them; the link's thread brings the daemon's orders,
// which the main thread reads between two calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "owner/owner.h"
#include "worker/execution.h"
#include "worker/late_replies.h"

namespace manta::worker {

class Worker final : public owner::InPlaceRunner {
 public:
  explicit Worker(int socket);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Status Join();  // says Hello
  int Serve();    // until the daemon says Exit; the process's exit code

  // InPlaceRunner
  [[nodiscard]] bool RoomOnStack() const override;
  void Run(const std::byte* spec, std::uint64_t bytes) override;

  // Ends a deferred call of the actor.
  void Resume(Execution* call, internal::Trampoline rest);

  void LeaveAfterCall() { leave_ = true; }

  // While it sleeps, its actor's CPUs serve others.
  void LendWhenIdle() { lends_ = true; }

  // Once what runs has finished. Any thread; the first one counts.
  void End(const internal::WorkerEnd& end);
  static void SetFarewell(internal::Farewell farewell);

  [[nodiscard]] static Worker* Current();
  [[nodiscard]] Id actor() const { return actor_ == nullptr ? Id() : actor_->id; }
  [[nodiscard]] const ActorSelf* own_actor() const { return actor_.get(); }
  [[nodiscard]] const std::vector<std::uint32_t>& gpus() const { return gpus_; }

 private:
  void Deliver(wire::Frame& frame);  // link's thread
  void ReadMail();
  void StartLease(wire::Frame& frame);
  void ReturnLease();
  void StartActor(wire::Frame& frame);
  void AddCaller(wire::Frame& frame);
  std::shared_ptr<shm::Arena> ArenaOf(ProcessId owner, std::vector<base::Fd>& fds);
  std::unique_ptr<Served> Serving(ProcessId owner, std::uint64_t queue, std::uint64_t lane, std::vector<base::Fd>& fds);
  Result<std::unique_ptr<Served>> ServingFar(ProcessId owner, std::uint64_t pass, ProcessId stored_for,
                                             std::string* address);
  bool ServeOnce();
  void RunTask(Served& served, const shm::QueueWorker::Task& task);
  bool WorkWaits();
  [[nodiscard]] bool SharesCore() const;  // with an owner that is awake
  bool SpinForWork();
  void Idle();
  // Answers to a caller on another node leave now, or soon if another call is to run at once (`more`).
  void Flush(Served& served, bool more);
  // Sends them, after what they rest on. Any thread.
  void SendAnswers(FarCaller& caller);
  // Returns when its home or the head has it. If nobody takes it, the process ends: no call may look done that its
  // caller has no answer to, or it would not be sent to the actor's next life.
  void CopyJournal();
  void SetGpus(bool with, const std::vector<std::uint32_t>& gpus);
  void AddPoolThread();
  void PoolThread();
  void StopPool();
  // Of a worker that is to end: false when no call runs any more.
  bool AwaitRunning();
  void Lend();
  void TakeBackLent();
  void Leave();
  bool WaitToSave();

  std::shared_ptr<owner::DaemonLink> link_;
  std::shared_ptr<shm::Arena> arena_;
  std::shared_ptr<shm::NodeArea> node_;
  std::unique_ptr<owner::Owner> owner_;
  std::unique_ptr<FarCallers> far_;  // none until the first
  shm::Doorbell* bell_ = nullptr;
  shm::HandOver hand_over_;  // to owners on this core

  std::mutex mail_mutex_;
  std::vector<wire::Frame> mail_;
  bool exit_ = false;
  bool leave_ = false;  // after the task that runs
  bool lends_ = false;
  bool lent_ = false;
  std::atomic<bool> ending_{false};
  std::optional<internal::WorkerEnd> end_;  // written before ending_ is

  std::vector<std::unique_ptr<Served>> served_;  // one for a lease, one per caller for an actor
  std::size_t turn_ = 0;
  std::unordered_map<ProcessId, std::shared_ptr<shm::Arena>> arenas_;
  std::vector<std::uint32_t> gpus_;
  // The devices in CUDA_VISIBLE_DEVICES when this process started: GPU i of the node is the i-th of these.
  std::optional<std::vector<std::string>> preset_gpus_;
  std::uint64_t ran_ = 0;

  std::unique_ptr<ActorSelf> actor_;
  std::mutex copy_mutex_;            // held while changes of its journal are on their way: they arrive in their order
  bool prompt_ = false;              // calls of the actor are not to be made twice
  std::atomic<bool> copied_{false};  // its journal, to its home, before answers leave this node
  std::atomic<bool> copied_by_range_{false};
  std::uint32_t concurrency_ = 1;
  std::uint32_t deferred_ = 0;  // calls of an actor with a step that have not ended
  bool step_busy_ = true;       // something is under way there; its constructor may have begun it
  // Threads of an actor that runs several calls at a time.
  struct Job {
    Served* served = nullptr;
    shm::QueueWorker::Task task;
  };
  std::mutex pool_mutex_;
  std::condition_variable pool_wake_;
  std::deque<Job> jobs_;
  bool pool_stop_ = false;
  std::vector<std::thread> pool_;
  std::atomic<std::uint32_t> in_pool_{0};
  std::atomic<std::uint64_t> finished_{0};  // calls of an actor that runs several at a time
  std::uint64_t counted_ = 0;               // of these
  bool checkpoint_due_ = false;
  std::int64_t held_until_us_ = 0;  // until then no call begins, so that it can be made
  LateReplies late_replies_{[this](FarCaller& caller) { SendAnswers(caller); }};  // last: its thread uses the above
};

}  // namespace manta::worker
