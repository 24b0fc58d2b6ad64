// Many threads of one process submit and wait at once, against workers that are threads too and use the very mapping of
// the owner's arena: so ThreadSanitizer sees the whole way of a call (log, queue, lane, doorbell, waiting). What a
// sleeper does after a while by itself, and so would hide a wake-up that was lost, is put off beyond the test's
// patience.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "manta/internal/core.h"
#include "owner/owner.h"
#include "owner/visit.h"
#include "shm/lane.h"
#include "shm/queue.h"
#include "shm/spec.h"

namespace manta {
namespace {

using internal::Entry;

constexpr std::int64_t kNever = 3'600'000'000;  // µs
constexpr std::int64_t kPatience = 60'000'000;  // µs: a wait that takes so long was forgotten

void Code(internal::Invocation&) {}

// Serves one lease as worker/worker.cc does: claims, answers, and sleeps when there is nothing to do.
class Server {
 public:
  static constexpr std::uint64_t kHeld = ~0ULL;  // an argument: its answer comes after Release

  Server(shm::Arena& arena, shm::NodeArea& node, ProcessId self, ProcessId owner, const wire::LeaseRequest& lease)
      : arena_(arena),
        bell_(node.bell(self)),
        owner_(node.bell(owner)),
        lane_(arena.at(lease.lane)),
        queue_(arena.at(lease.queue), lane_.memory().index) {
    lane_.memory().worker.store(self, std::memory_order_release);
    thread_ = std::thread([this] { Run(); });
  }
  ~Server() {
    stop_.store(true, std::memory_order_seq_cst);
    bell_.Ring();
    thread_.join();
  }
  [[nodiscard]] shm::LaneMemory& lane() { return lane_.memory(); }
  void Release() {
    released_.store(true, std::memory_order_seq_cst);
    bell_.Ring();
  }

 private:
  void Run() {
    std::vector<shm::QueueWorker::Task> held;
    while (!stop_.load(std::memory_order_seq_cst)) {
      shm::QueueWorker::Task task;
      if (queue_.TryClaim(&task)) {
        if (!Answer(task)) held.push_back(task);
        continue;
      }
      if (!held.empty() && released_.load(std::memory_order_seq_cst)) {
        for (const shm::QueueWorker::Task& old : held) Answer(old);
        held.clear();
      }
      lane_.memory().asleep.store(1, std::memory_order_seq_cst);
      const std::uint32_t ticket = bell_.PrepareSleep();
      const bool release = !held.empty() && released_.load(std::memory_order_seq_cst);
      if (!queue_.Ready() && !release && !stop_.load(std::memory_order_seq_cst)) bell_.Sleep(ticket, -1);
      lane_.memory().asleep.store(0, std::memory_order_relaxed);
    }
  }
  // With the argument, times two. False: not yet.
  bool Answer(const shm::QueueWorker::Task& task) {
    Result<shm::SpecReader> spec = shm::SpecReader::Open(arena_.at(task.spec), shm::kArenaBytes - task.spec);
    Result<shm::SpecReader::Item> item = spec->Next();
    std::uint64_t number = 0;
    std::memcpy(&number, item->data, sizeof number);
    if (number == kHeld && !released_.load(std::memory_order_seq_cst)) return false;
    number *= 2;
    shm::ReplyHeader* reply = nullptr;
    while ((reply = lane_.Begin(sizeof number)) == nullptr) {
      owner_.Ring();
      std::this_thread::yield();
    }
    reply->entry = spec->header().entry;
    reply->generation = spec->header().generation;
    reply->flags = shm::ReplyHeader::kLast;
    std::memcpy(reinterpret_cast<std::byte*>(reply + 1), &number, sizeof number);
    lane_.Commit(reply);
    lane_.Publish();
    owner_.Ring();
    queue_.Done(task);
    return true;
  }

  shm::Arena& arena_;
  shm::Doorbell& bell_;
  shm::Doorbell& owner_;
  shm::LaneWriter lane_;
  shm::QueueWorker queue_;
  std::atomic<bool> released_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// An owner, and a daemon that grants every lease at once.
class WaitingTest : public ::testing::Test {
 protected:
  static constexpr ProcessId kOwner = 1;

  void Start(const owner::Owner::Pace& pace, owner::InPlaceRunner* runner = nullptr) {
    grants_ = runner == nullptr;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    daemon_end_.Reset(ends[1]);
    Result<shm::Arena> arena = shm::Arena::Create();
    Result<shm::NodeArea> node = shm::NodeArea::Create(2);
    ASSERT_TRUE(arena.ok() && node.ok());
    arena_ = std::make_shared<shm::Arena>(std::move(*arena));
    node_ = std::make_shared<shm::NodeArea>(std::move(*node));
    owner::Owner::Setup setup;
    setup.link = link_ = std::make_shared<owner::DaemonLink>(base::Fd(ends[0]));
    setup.arena = arena_;
    setup.node = node_;
    setup.welcome.process = kOwner;
    setup.welcome.total.Set("CPU", 3 * kUnit);
    setup.job = Id{1, 1};
    setup.pace = pace;
    setup.runner = runner;
    owner_ = std::make_unique<owner::Owner>(std::move(setup));
    link_->Start([this](wire::Frame& frame) { owner_->OnMessage(frame); }, [](const std::string&) {});
    owner_->BecomeCurrent();
    daemon_ = std::thread([this] { Serve(); });
  }
  void TearDown() override {
    if (owner_ != nullptr) Stop();
  }
  void Stop() {
    owner::Visit::Close();
    link_->Stop();
    daemon_.join();
    servers_.clear();
    owner::Visit::WaitForEverybody();
    owner_.reset();
  }

  void Serve() {
    wire::FrameReader reader;
    for (;;) {
      std::vector<std::byte> buffer(4096);
      std::size_t count = 0;
      std::vector<base::Fd> fds;
      bool would_block = false;
      if (!wire::Receive(daemon_end_.get(), buffer, &count, &fds, &would_block).ok() || count == 0) return;
      reader.Add(std::span(buffer).first(count), std::move(fds));
      for (wire::Frame frame;;) {
        Result<bool> whole = reader.Next(&frame);
        if (!whole.ok() || !*whole) break;
        if (frame.kind != wire::Kind::kLeaseRequest || !grants_) continue;
        const wire::LeaseRequest request = *frame.As<wire::LeaseRequest>();
        const auto worker = static_cast<ProcessId>(kOwner + 1 + servers_.size());
        const std::lock_guard lock(servers_mutex_);
        if (servers_.size() >= most_servers_) {
          ++refused_;
          const Failure why{Code::kUnavailable, "no more workers", {}, {}};
          const std::string refused = wire::EncodeFrame(wire::LeaseRefused{request.request, why});
          if (!wire::SendAll(daemon_end_.get(), std::as_bytes(std::span(refused)), {}).ok()) return;
          continue;
        }
        servers_.push_back(std::make_unique<Server>(*arena_, *node_, worker, kOwner, request));
        const std::string granted = wire::EncodeFrame(wire::LeaseGranted{request.request, worker, 1});
        if (!wire::SendAll(daemon_end_.get(), std::as_bytes(std::span(granted)), {}).ok()) return;
      }
    }
  }

  static Entry* Submit(std::uint64_t number) {
    internal::RefScope scope;
    internal::Arguments& arguments = internal::Arguments::ForThisThread();
    std::memcpy(arguments.AddValue(sizeof number), &number, sizeof number);
    Entry* entry = nullptr;
    internal::Submit({.trampoline = &Code}, arguments, scope, nullptr, 1, &entry);
    arguments.Done();
    return entry;
  }
  static std::uint64_t Get(Entry* entry, std::int64_t timeout_us = kPatience) {
    KeepAlive keep;
    const internal::View view = internal::Await(entry, timeout_us, &keep);
    std::uint64_t number = 0;
    EXPECT_EQ(view.size, sizeof number);
    std::memcpy(&number, view.data, sizeof number);
    return number;
  }

  // Calls, waited for in every way: one by one, all, some, and not at all.
  static void Drive(unsigned seed, int rounds) {
    std::minstd_rand random(seed);
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::uint64_t> numbers(1 + random() % 6);
      std::vector<Entry*> entries;
      for (std::uint64_t& number : numbers) entries.push_back(Submit(number = random()));
      switch (random() % 4) {
        case 0:
          internal::AwaitAll(entries, kPatience);
          break;
        case 1: {
          std::vector<bool> ready;
          const std::size_t count = 1 + random() % entries.size();
          EXPECT_GE(internal::WaitSome(entries, count, kPatience, &ready), count);
          break;
        }
        default:
          break;
      }
      if (random() % 8 != 0) {
        for (std::size_t i = entries.size(); i-- > 0;) ASSERT_EQ(Get(entries[i]), 2 * numbers[i]);
      }
      for (Entry* entry : entries) internal::Release(entry);
    }
  }
  void DriveMany(unsigned threads, int rounds) {
    std::vector<std::thread> drivers;
    for (unsigned i = 1; i <= threads; ++i) drivers.emplace_back([i, rounds] { EXPECT_NO_THROW(Drive(i, rounds)); });
    for (std::thread& driver : drivers) driver.join();
  }

  std::shared_ptr<shm::Arena> arena_;
  std::shared_ptr<shm::NodeArea> node_;
  std::shared_ptr<owner::DaemonLink> link_;
  std::unique_ptr<owner::Owner> owner_;
  base::Fd daemon_end_;
  bool grants_ = true;
  std::thread daemon_;
  std::size_t most_servers_ = 1000;
  std::atomic<int> refused_{0};
  std::mutex servers_mutex_;
  std::vector<std::unique_ptr<Server>> servers_;
};

TEST_F(WaitingTest, NoThreadIsForgottenWhenAnswersComeWhileOthersGoToSleep) {
  Start({.look_us = kNever, .tick_us = kNever});
  DriveMany(6, 1500);
}

TEST_F(WaitingTest, NoThreadIsForgottenWhenTheBackgroundReadsItsAnswer) {
  Start({.look_us = kNever, .tick_us = 50});
  DriveMany(6, 1500);
}

// The first to sleep listens for all others. Here it waits for an answer that does not come, so that it neither leaves
// nor tells anybody by the way.
TEST_F(WaitingTest, NoThreadIsForgottenBehindOneThatWaitsForLong) {
  for (const std::int64_t tick : {kNever, std::int64_t{50}}) {
    Start({.look_us = kNever, .tick_us = tick});
    std::thread listener([] {
      Entry* entry = Submit(Server::kHeld);
      EXPECT_NO_THROW(EXPECT_EQ(Get(entry), 2 * Server::kHeld));
      internal::Release(entry);
    });
    DriveMany(4, 1500);
    {
      const std::lock_guard lock(servers_mutex_);
      for (const std::unique_ptr<Server>& server : servers_) server->Release();
    }
    listener.join();
    Stop();
  }
}

TEST_F(WaitingTest, OneThreadAloneIsRungForEveryAnswer) {
  Start({.look_us = kNever, .tick_us = kNever});
  DriveMany(1, 5000);
}

// A worker that has threads of the user: one sleeps for a call, another one finds it not begun and runs it in place.
TEST_F(WaitingTest, WhoRunsACallInPlaceTellsThoseWhoWaitForIt) {
  struct Runner : owner::InPlaceRunner {
    [[nodiscard]] bool RoomOnStack() const override { return true; }
    void Run(const std::byte* spec, std::uint64_t bytes) override {
      const Result<shm::SpecReader> reader = shm::SpecReader::Open(spec, bytes);
      const std::uint64_t answer = 42;
      owner->DeliverValue(owner->EntryOf(reader.value().header()), 0, std::as_bytes(std::span(&answer, 1)), true);
    }
    owner::Owner* owner = nullptr;
  };
  Runner runner;
  Start({.look_us = kNever, .tick_us = kNever}, &runner);
  runner.owner = owner_.get();
  Resources need;
  need.Set("CPU", kUnit);
  owner::Caller caller;
  caller.session = owner_->session();
  caller.need = &need;
  for (int round = 0; round < 100; ++round) {
    owner_->bell().sleeping.store(0);
    Entry* entry = Submit(1);
    std::vector<std::thread> waiters;  // one listens, the other follows it
    for (int i = 0; i < 2; ++i) waiters.emplace_back([&] { EXPECT_NO_THROW(EXPECT_EQ(Get(entry), 42U)); });
    while (owner_->bell().sleeping.load() == 0) std::this_thread::yield();
    std::thread runs([&] {
      owner::ThisCaller() = caller;
      EXPECT_NO_THROW(EXPECT_EQ(Get(entry, internal::kForever), 42U));  // with a timeout, it would leave it to others
    });
    runs.join();
    for (std::thread& waiter : waiters) waiter.join();
    internal::Release(entry);
  }
}

TEST_F(WaitingTest, AQueueThatIsServedDoesWithoutTheWorkerThatCannotBeHad) {
  most_servers_ = 1;
  Start({});
  Entry* held = Submit(Server::kHeld);
  std::vector<Entry*> entries;
  for (std::uint64_t i = 0; i < 200; ++i) entries.push_back(Submit(i));
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_EQ(Get(entries[i]), 2 * i);
  while (refused_.load() == 0) {  // another worker is asked for when many calls wait
    Entry* more = Submit(1);
    entries.push_back(more);
  }
  for (std::size_t i = 200; i < entries.size(); ++i) ASSERT_EQ(Get(entries[i]), 2U);
  EXPECT_LT(refused_.load(), 50) << "asked for in vain again and again";
  {
    const std::lock_guard lock(servers_mutex_);
    servers_[0]->Release();
  }
  EXPECT_EQ(Get(held), 2 * Server::kHeld);
  entries.push_back(held);
  for (Entry* entry : entries) internal::Release(entry);
}

TEST_F(WaitingTest, AQueueThatNobodyServesFailsWithTheReason) {
  most_servers_ = 0;
  Start({});
  Entry* entry = Submit(1);
  try {
    Get(entry);
    ADD_FAILURE() << "nobody could have answered";
  } catch (const UnavailableError& error) {
    EXPECT_STREQ(error.what(), "no more workers");
  }
  internal::Release(entry);
}

// The same call, from the ring to the sleepers: each of them must hear of the one answer.
TEST_F(WaitingTest, AllWhoWaitForOneAnswerHearOfIt) {
  Start({.look_us = kNever, .tick_us = kNever});
  for (std::uint64_t round = 0; round < 300; ++round) {
    Entry* entry = Submit(round);
    std::vector<std::thread> waiters;
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([entry, round] { EXPECT_NO_THROW(EXPECT_EQ(Get(entry), 2 * round)); });
    }
    for (std::thread& waiter : waiters) waiter.join();
    internal::Release(entry);
  }
}

// The server sleeps; its doorbell and lane claim that it is awake on the caller's core, or on another one.
TEST_F(WaitingTest, ACallerOnItsWorkersCoreTakesNoTokenToSpin) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  Start({.look_us = kNever, .tick_us = kNever});
  shm::Doorbell& worker = node_->bell(kOwner + 1);
  worker.core.store(-1);
  Entry* entry = Submit(21);
  EXPECT_EQ(Get(entry), 42U);
  internal::Release(entry);
  while (worker.core.load() == -1) std::this_thread::yield();  // it is about to sleep, and has no more to do
  {
    const std::lock_guard lock(servers_mutex_);  // the server may run before it is in the list
    servers_.front()->lane().asleep.store(0);
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto most_spinners = [&](std::int32_t core) {
    worker.core.store(core);
    std::int32_t most = 0;
    const auto look = [&] {
      most = std::max(most, node_->header().spinners.load());
      return false;
    };
    EXPECT_FALSE(owner_->WaitUntil(look, base::NowMicros() + 5000, {}));
    return most;
  };
  EXPECT_EQ(most_spinners(sched_getcpu()), 0);
  EXPECT_EQ(most_spinners(sched_getcpu() + 1), 1);
  sched_setaffinity(0, sizeof before, &before);
}

// A thread that puts small values holds up no other: it has a stock of entries (owner::EntryTable).
TEST_F(WaitingTest, ASmallValueIsPutReadAndFreedWhileAnotherThreadHoldsTheMutex) {
  Start({.look_us = kNever, .tick_us = kNever});
  const auto put = [](std::size_t size) {
    std::byte* bytes = nullptr;
    Entry* entry = internal::PutBegin(size, &bytes);
    std::memset(bytes, 7, size);
    internal::RefScope scope;
    internal::PutEnd(entry, scope);
    return entry;
  };
  std::atomic<int> stage{0};
  std::thread other([&] {
    internal::Release(put(8));  // takes a stock, with the mutex
    stage = 1;
    while (stage == 1) std::this_thread::yield();
    for (const std::size_t size : {8, 1000}) {  // in the entry, and in the heap
      Entry* entry = put(size);
      KeepAlive keep;
      EXPECT_EQ(internal::Await(entry, kPatience, &keep).size, size);
      internal::Release(entry);
    }
    stage = 3;
  });
  while (stage == 0) std::this_thread::yield();
  {
    const std::lock_guard lock(owner::EntryTable::Get().mutex);
    stage = 2;
    const std::int64_t until = base::NowMicros() + 10'000'000;
    while (stage != 3 && base::NowMicros() < until) std::this_thread::yield();
    EXPECT_EQ(stage.load(), 3) << "it waits for the mutex";
  }
  other.join();
}

// Several threads put, share and free small values while another one walks the table: for ThreadSanitizer.
TEST_F(WaitingTest, SmallValuesOfSeveralThreadsAreFreedByOthersAndKeepTheirBytes) {
  Start({.look_us = kNever, .tick_us = kNever});
  constexpr int kThreads = 3;
  constexpr int kRounds = 2000;
  std::mutex mutex;
  std::vector<std::pair<Entry*, std::uint64_t>> shared;
  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kRounds; ++i) {
      const std::uint64_t number = random();
      const std::size_t size = number % 2 == 0 ? 8 : 100;
      std::byte* bytes = nullptr;
      Entry* entry = internal::PutBegin(size, &bytes);
      std::memcpy(bytes, &number, sizeof number);
      internal::RefScope scope;
      internal::PutEnd(entry, scope);
      const std::lock_guard lock(mutex);
      shared.emplace_back(entry, number);
      while (shared.size() > 300) {
        const auto [old, expected] = shared[random() % shared.size()];
        std::erase(shared, std::pair(old, expected));
        KeepAlive keep;
        std::uint64_t got = 0;
        std::memcpy(&got, internal::Await(old, kPatience, &keep).data, sizeof got);
        EXPECT_EQ(got, expected);
        internal::Release(old);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (int i = 0; i < 20; ++i) owner_->CancelChildren(Id{7, 7}, 3);  // walks
  for (std::thread& thread : threads) thread.join();
  for (const auto& [entry, number] : shared) internal::Release(entry);
}

}  // namespace
}  // namespace manta
