// NodeArea is the one memory that all processes of a node share: a doorbell for each of them and the
// spin tokens of the machine. Made by the daemon, mapped writable by everybody.
//
// A doorbell is how one process wakes another. A futex wake of a halted core costs 42 µs here, a
// spinning hand-over 0.4, so a ring is a plain load while its owner is awake:
//   sleeper:  sleeping = 1; look once more; futex wait while sleeping == 1
//   ringer:   publish (sequentially consistent); if sleeping: sleeping = 0; futex wake
// A ringer that is killed between these two leaves a sleeper whom nobody else would wake: it looks awake. So the daemon
// rouses all who look so when a process has died, and whoever has no second chance to be heard rouses, too.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/fd.h"
#include "shm/mapping.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::shm {

struct alignas(128) Doorbell {
  // What `flags` asks of the receiver's main loop, besides the work in its queues.
  static constexpr std::uint32_t kRevoke = 1;  // daemon to worker: give the lease back between tasks
  static constexpr std::uint32_t kMail = 2;    // own connection thread: look at the inbox
  // What `state` says of a worker, for `manta status` and for choosing whom to revoke.
  static constexpr std::uint32_t kIdle = 0;
  static constexpr std::uint32_t kBusy = 1;
  static constexpr std::uint32_t kWaiting = 2;  // a task sleeping in Get
  // `current` from the beginning of an actor's constructor to its first call.
  static constexpr std::uint64_t kConstructing = ~0ULL;

  std::atomic<std::uint32_t> sleeping;  // somebody prepared to sleep since the last ring
  std::atomic<std::uint32_t> rings;     // counts those that woke somebody: what sleepers wait to see changed
  std::atomic<std::uint32_t> flags;
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> spinning;  // holds a spin token; the daemon takes it back after a crash
  std::atomic<std::int32_t> core;       // where its main or waiting thread last ran: a hint (hand_over.h)
  std::atomic<std::uint64_t> on_disk;   // bytes that it has in the spill folder, see disk_share.h
  // What its process writes for every task, on a line of its own: who rings looks at the line above for every task.
  alignas(64) std::atomic<std::uint64_t> submitted;  // tasks this process has submitted, ever
  std::atomic<std::uint64_t> completed;              // and those of them that came to an end
  std::atomic<std::uint64_t> ran;                    // tasks this process has run, ever
  std::atomic<std::uint64_t> current;  // TaskToken of the leased call or serial actor's call that it runs; 0: none

  // Wakes the receiver if it sleeps. Publish with memory_order_seq_cst before.
  void Ring();
  // As Ring, whatever `sleeping` says: a system call each time.
  void Rouse();
  // Sleeps until rung or `timeout_us` (-1: for ever) has passed. PrepareSleep, then look once more for work, then
  // Sleep, or not if there was some. Several threads may sleep at once (a worker's main thread, and a user's in
  // Get), so nobody ever takes `sleeping` back: that would make the others deaf. A stale one costs one empty wake.
  [[nodiscard]] std::uint32_t PrepareSleep() {
    const std::uint32_t ticket = rings.load(std::memory_order_seq_cst);
    sleeping.store(1, std::memory_order_seq_cst);
    return ticket;
  }
  void Sleep(std::uint32_t ticket, std::int64_t timeout_us);
  // Records the calling thread's core as the process's.
  void RunsHere() {
    const std::int32_t here = sched_getcpu();
    if (core.load(std::memory_order_relaxed) != here) core.store(here, std::memory_order_relaxed);
  }
  // Whether the process last ran on the calling thread's core: a waiter that spins there delays it.
  [[nodiscard]] bool SharesCore() const { return core.load(std::memory_order_relaxed) == sched_getcpu(); }
  // Whether it was rung since it prepared to sleep. It may be awake without.
  [[nodiscard]] bool Rung() const { return sleeping.load(std::memory_order_relaxed) == 0; }
};
static_assert(sizeof(Doorbell) == 128);

struct NodeHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t cores;
  std::atomic<std::int32_t> spinners;  // processes that spin now; never more than cores
  std::atomic<std::uint32_t> bells;    // beyond these, none was ever used
};

class NodeArea {
 public:
  static Result<NodeArea> Create(std::uint32_t cores);  // the daemon
  static Result<NodeArea> Open(base::Fd fd);            // everybody else

  [[nodiscard]] NodeHeader& header() { return *reinterpret_cast<NodeHeader*>(map_.data()); }
  [[nodiscard]] Doorbell& bell(ProcessId process) {
    return reinterpret_cast<Doorbell*>(map_.data() + kBellsOffset)[SlotOf(process)];
  }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // A process may spin only while it holds a token: never more spinners than cores.
  bool TakeSpinToken(Doorbell& bell);
  void ReturnSpinToken(Doorbell& bell);
  // What all processes have in the spill folder.
  [[nodiscard]] std::uint64_t OnDisk();
  // Makes a doorbell like new, for a new process or after a crash.
  void Reset(ProcessId process);
  // Wakes those whose ringer died over it; hardly anybody else.
  void RouseDeaf(ProcessId process) {
    if (bell(process).sleeping.load(std::memory_order_seq_cst) == 0) bell(process).Rouse();
  }

 private:
  static constexpr std::size_t kBellsOffset = 4096;
  base::Fd fd_;
  Mapping map_;
};

}  // namespace manta::shm
