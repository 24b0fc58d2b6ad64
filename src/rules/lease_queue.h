// LeaseQueue decides who gets the node's CPUs, GPUs and named resources next, and which sticky lease
// must end because somebody else waits. Pure bookkeeping: no clock, sockets or locks; the daemon's loop
// calls it, tells it the time, and carries out the actions that each event appends.
//
// Invariants, after every call:
//   (1) free + what the leases hold == total and pools, per resource and per GPU; nothing is ever negative.
//   (2) a request is waiting, granted or gone; never two of these.
//   (3) a lease is revoked at most once, and stays accounted until Return or Lost.
//   (4) nobody waits who could be served with what is free and not held back for those before it.
//
// Order. Tasks that woke up and want their CPUs back (Unblock) come first, in order of waking. Then requests:
// higher priority first; within a priority those whose queue is served by fewer leases (blocked ones do not count,
// nor do any while their owner says they are stuck in long tasks); then by arrival. When a revoked lease ends, the
// requests of its queue go to the end of the line. Why arrival and not best fit: best fit lets a stream of 1-CPU tasks
// starve a 16-CPU one forever. Why the less served queue goes first: an owner that asks for many workers would
// otherwise keep out all who came later until it has them all. Requests that differ only in number (same owner, queue,
// priority and need) form a line; only its first counts.
//
// Holding back. A request (the first of its line) that does not fit keeps those behind it away from what it needs:
//   - of each resource it lacks, everything that is free (it is short of it);
//   - of each resource of which there is enough, its need; but not CPUs while it lacks something else: a task
//     waiting for a GPU does not idle the CPUs.
// It holds back nothing while its need exceeds what is neither held by actors nor (GPUs) by blocked tasks: those
// may end only after a request behind it was served (an actor whose owner waits for that very request).
//
// Blocked leases keep their GPUs (memory is on the device) and give back all else. A task that wakes up when actors
// have taken so much that its need cannot come back as long as they live resumes with what is free, perhaps
// nothing: it may be the one who would end the actor, and to wait would be a deadlock. So does one whose time is up
// (Get with a timeout): it may be about to cancel the very task that has its CPU. These are the only ways for a task to
// run with less than it asked for; the sums stay exact.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "types/id.h"
#include "types/resources.h"
#include "types/status.h"

namespace manta::rules {

struct LeaseKey {
  ProcessId owner = kNoProcess;  // kNoProcess: the daemon itself, for actors
  std::uint64_t request = 0;     // unique within the owner

  friend auto operator<=>(const LeaseKey&, const LeaseKey&) = default;
};

struct LeaseWant {
  LeaseKey key;
  Resources need;
  std::int32_t priority = 0;
  bool actor = false;       // never revoked
  std::uint64_t queue = 0;  // of the owner; a request never has a lease revoked that serves its own queue
  bool stalled = false;     // all leases of its queue are inside long tasks: as good as served by none
};

// `key` is granted, as lease number `lease` (never 0, never used twice). Give it a worker.
struct Grant {
  LeaseKey key;
  std::uint64_t lease = 0;
  std::vector<std::uint32_t> gpus;  // device ids: n for n whole GPUs, one for a fraction
};
// Ask the worker to return the lease after its current task.
struct Revoke {
  std::uint64_t lease = 0;
};
// The task of `lease` may go on: answer all Unblock calls of this lease.
struct Resume {
  std::uint64_t lease = 0;
};
using LeaseAction = std::variant<Grant, Revoke, Resume>;
using LeaseActions = std::vector<LeaseAction>;

class LeaseQueue {
 public:
  // How long a lease is safe from requests of its own priority.
  static constexpr std::int64_t kQuantumUs = 20'000;
  // How often to look for leases that ran idle (their workers do not tell) while somebody waits.
  static constexpr std::int64_t kIdlePollUs = 5'000;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Lease {
    LeaseWant want;
    std::int64_t granted_us = 0;
    bool blocked = false;  // sleeps in Get, or waits to resume
    bool revoked = false;
    bool late = false;  // wants to resume now, with what there is
    Resources held;     // accounted to it now; less than want.need while blocked
    std::vector<std::uint32_t> gpus;
  };

  // `node` is for messages. GPUs count whole; a fraction of one in `total` is ignored.
  LeaseQueue(std::string node, Resources total);

  // kInfeasible if the node can never grant it, kInvalid if it makes no sense (a negative amount, 1.5 GPUs).
  // `who` begins the message: "task", "actor Counter".
  [[nodiscard]] Status Check(const Resources& need, const std::string& who = "task") const;

  // ---- bundles of placement groups ----

  // What somebody set aside (by a request of the node's own, as for an actor) is shared out again under other names
  // (BundlePool), to those who know them. `gpus`: the devices that the request was granted.
  void AddPool(const Resources& pool, const std::vector<std::uint32_t>& gpus);
  // False, and nothing happens, while somebody holds some of it. Nobody may wait for it.
  bool RemovePool(const Resources& pool, const std::vector<std::uint32_t>& gpus);

  // ---- quotas of jobs (rules/job_quota.h) ----

  // Names as OfQuota makes them. A request that names some which is not here waits for it, and holds back nothing but
  // that: its job's other requests only. `total` over all nodes; `here` of it may be had on this one.
  void SetQuota(const Resources& total, const Resources& here);
  void AddShare(const Resources& more, std::int64_t now_us, LeaseActions* actions);
  // False, and nothing happens, while somebody holds some of it.
  bool RemoveShare(const Resources& less);
  // The lease ends, and what it held (names of a quota only) is not here any more.
  void Withdraw(std::uint64_t lease);
  // Nothing of the quota is here, and nobody asks for it any more.
  void DropQuota(const Resources& total);
  // What the first that waits lacks of the job's quota, and of nothing else when it could have `free`; with `patient`,
  // whatever else it lacks. Those who want nothing but some of the quota do not count.
  [[nodiscard]] Resources LacksQuota(const Id& job, const Resources& free, bool patient) const;
  // Does anybody who waits name it, beside something else?
  [[nodiscard]] bool WaitsForQuota(const Id& job) const;

  // ---- events; each appends what is to be done now ----

  // As Check; also kInvalid if the key is waiting or granted already.
  Status Add(const LeaseWant& want, std::int64_t now_us, LeaseActions* actions);
  // True if it was waiting (and is gone now).
  bool Cancel(const LeaseKey& key, std::int64_t now_us, LeaseActions* actions);
  // The lease's end: the worker gave it back, or died. False if there is no such lease. The two do the same here.
  bool Return(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions);
  bool Lost(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions);
  // Drops its waiting requests. Its leases end by Return or Lost, as their workers do.
  void OwnerDied(ProcessId owner, std::int64_t now_us, LeaseActions* actions);
  // Gives back all but GPUs. Again while blocked: nothing happens.
  bool Block(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions);
  // Wants it back; Resume says when (at once if it was not blocked). `late`: at once, with what is free and not held
  // back for those who woke up before. False, and no Resume, if there is no such lease.
  bool Unblock(std::uint64_t lease, bool late, std::int64_t now_us, LeaseActions* actions);

  // Decides revocations; the only method that does. Call it at the end of a round of the loop in which something
  // happened, and when NextTick comes. `idle` says whether a lease's worker found its queue empty and sleeps or spins;
  // it is asked only while somebody waits.
  //
  // For each that waits, in order, the leases it may have revoked are
  //   - idle ones, whatever their priority;
  //   - those of lower priority;
  //   - those of its own priority, granted kQuantumUs ago, if no lease serves its own queue or the other is served by
  //     at least two more: so equal owners share, and take turns if they must;
  //   - but never an actor's, a blocked one, or one that serves the same queue.
  // A woken task may take those of its own priority at once and from its own queue, since it holds up what waits for
  // it. Chosen are idle ones first, then lower priority, then longest held; just enough to cover what is lacking after
  // those already revoked (though an idle one is taken rather than a busy one waited for); and none at all while they
  // are not enough, since that would only stop work.
  void Tick(std::int64_t now_us, const std::function<bool(std::uint64_t lease)>& idle, LeaseActions* actions);
  // When Tick could decide something without a further event: kNever if nobody waits or all is on its way.
  [[nodiscard]] std::int64_t NextTick(std::int64_t now_us) const;

  // ---- what is ----

  [[nodiscard]] const Resources& total() const { return total_; }  // without pools
  [[nodiscard]] const Resources& free() const { return free_.amounts; }
  // What neither actors and bundles nor (GPUs) blocked tasks hold: bundles could have it, as soon as tasks end.
  [[nodiscard]] const Resources& loose() const { return loose_.amounts; }
  [[nodiscard]] Resources in_use() const;
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }    // requests
  [[nodiscard]] std::size_t resuming() const { return resuming_.size(); }  // woken tasks without their CPUs
  [[nodiscard]] bool IsWaiting(const LeaseKey& key) const { return waiting_.contains(key); }
  [[nodiscard]] const Lease* Find(std::uint64_t lease) const;
  [[nodiscard]] std::optional<std::uint64_t> LeaseOf(const LeaseKey& key) const;
  [[nodiscard]] const std::map<std::uint64_t, Lease>& leases() const { return leases_; }

 private:
  // Amounts, and how many units of each GPU device are left in them.
  struct Pool {
    Resources amounts;
    std::map<std::string, std::vector<std::int64_t>> devices;  // under "GPU", and under its name in each bundle

    // The devices that would serve `need`, or nothing if they do not suffice.
    [[nodiscard]] std::optional<std::vector<std::uint32_t>> PickGpus(const Resources& need) const;
    [[nodiscard]] bool Fits(const Resources& need) const;
    [[nodiscard]] std::vector<std::string> Lacks(const Resources& need) const;
    void Take(const Resources& held, const std::vector<std::uint32_t>& gpus) { Change(held, gpus, -1); }
    void Give(const Resources& held, const std::vector<std::uint32_t>& gpus) { Change(held, gpus, +1); }
    void TakeFitting(const Resources& need);
    void HoldBack(const Resources& need);  // see "Holding back"
    void Change(const Resources& held, const std::vector<std::uint32_t>& gpus, int sign);
  };
  using QueueName = std::pair<ProcessId, std::uint64_t>;  // owner, queue
  // Requests that differ in nothing but their number.
  struct Line {
    LeaseWant want;                                   // of each, but for key.request
    std::map<std::uint64_t, std::uint64_t> requests;  // arrival to request; never empty
  };
  using Lines = std::map<std::tuple<std::int32_t, bool, ProcessId, std::uint64_t, Resources, bool>, Line>;
  struct Spot {
    Lines::iterator line;
    std::uint64_t arrival = 0;
  };
  struct Served {
    std::int64_t running = 0;  // leases that are not blocked
    std::int64_t leaving = 0;  // those of them that are revoked
  };

  [[nodiscard]] static QueueName QueueOf(const LeaseWant& want) { return {want.key.owner, want.queue}; }
  [[nodiscard]] Served ServedBy(const LeaseWant& want) const;  // zeros for an actor
  // The same for one who waits: zero, too, if its leases are stuck.
  [[nodiscard]] std::int64_t HelpedBy(const LeaseWant& want) const { return want.stalled ? 0 : ServedBy(want).running; }
  // Could it be had if all tasks ended? Of a quota, what other nodes have counts, too.
  [[nodiscard]] bool FitsLoose(const Resources& need) const;
  // Changes of a lease go between Detach and Attach, which keep free_, loose_ and served_ in step with it.
  void Detach(const Lease& lease);
  void Attach(const Lease& lease);
  bool EndAndSettle(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions);
  void Award(const LeaseWant& want, std::int64_t now_us, LeaseActions* actions);
  void Forget(std::map<LeaseKey, Spot>::iterator it);  // it waits no more
  void GoToTheEnd(const QueueName& queue);
  [[nodiscard]] std::vector<const Line*> InOrder() const;  // see "Order"
  // Serves whoever can be served.
  void Settle(std::int64_t now_us, LeaseActions* actions);
  bool ResumeWoken(Pool* available, LeaseActions* actions);

  using IsIdle = std::function<bool(std::uint64_t)>;
  struct Candidate {
    bool busy = false;
    std::uint64_t number = 0;
    const Lease* lease = nullptr;
    bool taken = false;  // to be revoked
  };
  // What Tick would revoke, and when to ask again.
  struct Plan {
    // Leases of tasks that are neither blocked nor revoked, the first to go first. Sorted once and not per request: a
    // node of 64 CPUs that serves a hundred owners covers many in one plan, each by the first one or two.
    std::vector<Candidate> candidates;
    std::vector<std::uint64_t> revoke;
    std::map<QueueName, std::int64_t> losing;   // how many of `revoke` serve it
    std::map<QueueName, std::int64_t> gaining;  // how many of its requests are covered
    std::int64_t next_us = kNever;
  };
  // Who waits: a request, or a woken task.
  struct Needy {
    Resources need;
    const LeaseWant* want = nullptr;
    bool woken = false;
  };
  [[nodiscard]] Plan MakePlan(std::int64_t now_us, const IsIdle& idle) const;
  // Adds to the plan what `needy` may take to be covered, or nothing and false. `coming`: what is free or on its way.
  bool Cover(const Needy& needy, std::int64_t now_us, bool only_idle, Pool* coming, Plan* plan) const;
  [[nodiscard]] bool MayTake(const Needy& needy, const Lease& lease, bool idle, std::int64_t now_us,
                             const Plan& plan) const;

  const std::string node_;
  Resources total_;
  Resources all_;        // and pools
  Resources elsewhere_;  // of quotas: what is not here
  Pool free_;
  Pool loose_;  // total less what actors and blocked leases hold
  std::uint64_t last_lease_ = 0;
  std::uint64_t arrivals_ = 0;
  Lines lines_;
  std::map<LeaseKey, Spot> waiting_;
  std::map<std::uint64_t, Lease> leases_;
  std::map<LeaseKey, std::uint64_t> granted_;
  std::map<QueueName, Served> served_;
  std::vector<std::uint64_t> resuming_;  // blocked leases that want to go on, in order
};

}  // namespace manta::rules
