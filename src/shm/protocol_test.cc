// The shared-memory protocols run here as threads, because the thread sanitizer sees no race between
// processes.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "shm/lane.h"
#include "shm/node_area.h"
#include "shm/queue.h"

namespace manta::shm {
namespace {

struct alignas(64) QueueStorage {
  std::byte bytes[sizeof(QueueMemory)];
};
struct alignas(64) LaneStorage {
  std::byte bytes[kLaneBytes];
};

TEST(Queue, EveryTaskIsClaimedExactlyOnceByRacingWorkersAndTheOwner) {
  auto storage = std::make_unique<QueueStorage>();
  QueueOwner owner(storage->bytes);
  constexpr std::uint64_t kTasks = 200000;
  std::vector<std::atomic<int>> runs(kTasks + 1);
  std::vector<std::uint64_t> specs(kTasks + 1);  // plain, as in the log: the claim alone makes them readable
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (std::uint32_t lane = 1; lane <= 3; ++lane) {
    workers.emplace_back([&, lane] {
      QueueWorker worker(storage->bytes, lane);
      worker.ShareByLines(lane != 3);
      QueueWorker::Task task;
      for (;;) {
        if (worker.TryClaim(&task)) {
          EXPECT_EQ(specs[task.spec], task.spec * 3);
          runs[task.spec].fetch_add(1, std::memory_order_relaxed);
          worker.Done(task);
        } else if (stop.load(std::memory_order_relaxed)) {
          return;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::uint64_t taken = 0;
  for (std::uint64_t spec = 1; spec <= kTasks;) {
    std::uint64_t position = 0;
    QueueOwner::Displaced displaced;
    specs[spec] = spec * 3;
    if (!owner.Push(spec, &position, &displaced)) {
      std::this_thread::yield();
      continue;
    }
    if (spec % 7 == 0 && owner.TryTake(position)) {
      runs[spec].fetch_add(1);
      ++taken;
    }
    ++spec;
  }
  while (owner.backlog() > 0) std::this_thread::yield();
  stop.store(true);
  for (std::thread& w : workers) w.join();
  for (std::uint64_t spec = 1; spec <= kTasks; ++spec) ASSERT_EQ(runs[spec].load(), 1) << spec;
}

// In every order of pushes and looks, with lines skipped or not: whatever is pushed is found by somebody.
TEST(Queue, NothingIsLeftBehindWhenWorkersShareByLines) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    auto storage = std::make_unique<QueueStorage>();
    QueueOwner owner(storage->bytes);
    QueueWorker workers[3] = {{storage->bytes, 1}, {storage->bytes, 2}, {storage->bytes, 3}};
    std::uint64_t state = seed;
    const auto draw = [&](std::uint64_t below) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return (state >> 33) % below;
    };
    std::uint64_t pushed = 0;
    std::vector<int> runs(2001);
    QueueWorker::Task task;
    while (pushed < 2000) {
      for (std::uint64_t n = draw(12); n > 0 && pushed < 2000; --n) {
        std::uint64_t position = 0;
        QueueOwner::Displaced displaced;
        ASSERT_TRUE(owner.Push(++pushed, &position, &displaced));
      }
      for (std::uint64_t n = draw(14); n > 0; --n) {
        QueueWorker& worker = workers[draw(3)];
        worker.ShareByLines(draw(4) != 0);
        if (worker.TryClaim(&task)) {
          ++runs[task.spec];
          if (draw(3) != 0) worker.Done(task);
        }
      }
    }
    QueueWorker& last = workers[draw(3)];  // the others are inside long tasks
    while (last.Ready() && last.TryClaim(&task)) ++runs[task.spec];
    ASSERT_EQ(owner.backlog(), 0U) << "seed " << seed;
    for (std::uint64_t spec = 1; spec <= pushed; ++spec) ASSERT_EQ(runs[spec], 1) << spec << ", seed " << seed;
  }
}

TEST(Queue, ALongTaskIsReportedDisplacedAndDoesNotBlockTheRing) {
  auto storage = std::make_unique<QueueStorage>();
  QueueOwner owner(storage->bytes);
  QueueWorker slow(storage->bytes, 1);
  QueueWorker quick(storage->bytes, 2);
  std::uint64_t position = 0;
  QueueOwner::Displaced displaced;
  ASSERT_TRUE(owner.Push(1000000, &position, &displaced));
  QueueWorker::Task stuck;
  ASSERT_TRUE(slow.TryClaim(&stuck));
  int reports = 0;
  for (std::uint64_t spec = 1; spec <= 3 * kQueueSlots; ++spec) {
    ASSERT_TRUE(owner.Push(spec, &position, &displaced));
    if (displaced.yes) {
      ++reports;
      EXPECT_EQ(displaced.spec, 1000000U);
      EXPECT_EQ(displaced.lane, 1U);
    }
    QueueWorker::Task task;
    ASSERT_TRUE(quick.TryClaim(&task));
    ASSERT_EQ(task.spec, spec);
    quick.Done(task);
  }
  EXPECT_EQ(reports, 1);
  slow.Done(stuck);  // must not disturb the slot's new user
  QueueWorker::Task none;
  EXPECT_FALSE(quick.TryClaim(&none));
}

// Two workers have so much under way that the owner laps them: it writes over slots that they are about to mark done.
TEST(Queue, TheOwnerKnowsWhoHasWhatWhenItWritesOverTheSlotsOfSlowWorkers) {
  auto storage = std::make_unique<QueueStorage>();
  QueueOwner owner(storage->bytes);
  constexpr std::uint64_t kTasks = 20 * kQueueSlots;
  std::vector<std::uint32_t> claimed_by(kTasks + 1);  // by whoever claimed it; the owner looks only in the end
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (std::uint32_t lane = 1; lane <= 4; ++lane) {
    workers.emplace_back([&, lane] {
      QueueWorker worker(storage->bytes, lane);
      std::vector<QueueWorker::Task> open;
      const std::size_t limit = lane <= 2 ? 200 : 0;
      for (QueueWorker::Task task;;) {
        if (worker.TryClaim(&task)) {
          EXPECT_EQ(std::exchange(claimed_by[task.spec], lane), 0U);
          open.push_back(task);
        } else if (stop.load(std::memory_order_relaxed)) {
          break;
        } else {
          std::this_thread::yield();
        }
        if (open.size() <= limit) continue;
        worker.Done(open.front());
        open.erase(open.begin());
      }
      for (const QueueWorker::Task& task : open) worker.Done(task);
    });
  }
  std::vector<std::uint32_t> displaced_from(kTasks + 1);
  for (std::uint64_t spec = 1; spec <= kTasks;) {
    std::uint64_t position = 0;
    QueueOwner::Displaced displaced;
    if (!owner.Push(spec, &position, &displaced)) {
      std::this_thread::yield();
      continue;
    }
    if (displaced.yes) {
      EXPECT_EQ(std::exchange(displaced_from[displaced.spec], displaced.lane), 0U);
    }
    if (spec % 1024 == 0) {
      owner.ForClaimed(1, [&](std::uint64_t has, std::uint64_t at) { EXPECT_EQ(has, at + 1); });
    }
    ++spec;
  }
  while (owner.backlog() > 0) std::this_thread::yield();
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& w : workers) w.join();
  for (std::uint64_t spec = 1; spec <= kTasks; ++spec) {
    ASSERT_NE(claimed_by[spec], 0U) << spec;
    if (displaced_from[spec] != 0) {
      ASSERT_EQ(displaced_from[spec], claimed_by[spec]) << spec;
    }
  }
}

TEST(Queue, WhatADeadWorkerHadClaimedIsKnown) {
  auto storage = std::make_unique<QueueStorage>();
  QueueOwner owner(storage->bytes);
  QueueWorker dead(storage->bytes, 5);
  QueueWorker alive(storage->bytes, 6);
  std::uint64_t position = 0;
  QueueOwner::Displaced displaced;
  for (std::uint64_t spec = 1; spec <= 10; ++spec) ASSERT_TRUE(owner.Push(spec, &position, &displaced));
  QueueWorker::Task a;
  QueueWorker::Task b;
  ASSERT_TRUE(dead.TryClaim(&a));
  dead.Done(a);
  ASSERT_TRUE(alive.TryClaim(&b));
  ASSERT_TRUE(dead.TryClaim(&a));
  std::vector<std::uint64_t> lost;
  owner.ForClaimed(5, [&](std::uint64_t spec, std::uint64_t) { lost.push_back(spec); });
  EXPECT_EQ(lost, std::vector<std::uint64_t>{3});
}

TEST(Lane, RecordsOfAllSizesArriveOnceAndInOrder) {
  auto storage = std::make_unique<LaneStorage>();
  LaneReader reader(storage->bytes);
  constexpr std::uint32_t kRecords = 100000;
  std::thread writer([&] {
    LaneWriter lane(storage->bytes);
    for (std::uint32_t i = 0; i < kRecords; ++i) {
      const std::size_t size = (i * 37) % 500;
      ReplyHeader* header = nullptr;
      while ((header = lane.Begin(size)) == nullptr) std::this_thread::yield();
      header->entry = i;
      std::memset(reinterpret_cast<std::byte*>(header + 1), static_cast<int>(i & 255), size);
      lane.Commit(header);
      lane.Publish();
    }
  });
  std::uint32_t next = 0;
  while (next < kRecords) {
    ASSERT_TRUE(reader.Read(64, [&](const ReplyHeader& header, const std::byte* payload) {
      ASSERT_EQ(header.entry, next);
      ASSERT_EQ(header.size, (next * 37) % 500);
      for (std::uint32_t i = 0; i < header.size; ++i) ASSERT_EQ(payload[i], static_cast<std::byte>(next & 255));
      ++next;
    }));
  }
  writer.join();
}

TEST(Lane, AHalfWrittenRecordIsNotSeen) {
  auto storage = std::make_unique<LaneStorage>();
  LaneReader reader(storage->bytes);
  {
    LaneWriter lane(storage->bytes);
    ReplyHeader* header = lane.Begin(8);
    lane.Commit(header);
    lane.Publish();
    lane.Begin(100);  // killed here
  }
  LaneWriter successor(storage->bytes);
  ReplyHeader* header = successor.Begin(16);
  successor.Commit(header);
  successor.Publish();
  std::vector<std::uint32_t> sizes;
  ASSERT_TRUE(reader.Read(10, [&](const ReplyHeader& h, const std::byte*) { sizes.push_back(h.size); }));
  EXPECT_EQ(sizes, (std::vector<std::uint32_t>{8, 16}));
}

TEST(Lane, AUsedLaneIsLikeNewForTheNextReader) {
  auto storage = std::make_unique<LaneStorage>();
  std::memset(storage->bytes, 0xa5, sizeof storage->bytes);
  LaneReader reader(storage->bytes);
  const LaneMemory& lane = reader.memory();
  EXPECT_FALSE(reader.Ready());
  EXPECT_EQ(lane.tail.load() | lane.head.load() | lane.running.load() | lane.cancel.load(), 0U);
  EXPECT_EQ(lane.worker.load() | lane.asleep.load() | lane.index, 0U);
  EXPECT_EQ(lane.started_us.load(), 0);
  EXPECT_EQ(lane.ring[kLaneRing / 2], std::byte{0xa5});  // not written without need: it is 256 KiB
  EXPECT_TRUE(reader.Read(10, [](const ReplyHeader&, const std::byte*) { ADD_FAILURE(); }));
}

TEST(Lane, NonsenseInTheRingIsRefused) {
  auto storage = std::make_unique<LaneStorage>();
  LaneReader reader(storage->bytes);
  reader.memory().tail.store(kLaneRing * 3);
  EXPECT_FALSE(reader.Read(10, [](const ReplyHeader&, const std::byte*) {}));
  reader.memory().tail.store(64);  // records of zero bytes
  EXPECT_FALSE(reader.Read(10, [](const ReplyHeader&, const std::byte*) {}));
}

TEST(Doorbell, NoRingIsLostBetweenLookingAndSleeping) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  Doorbell& bell = area->bell(1);
  std::atomic<int> work{0};
  constexpr int kRounds = 20000;
  std::thread ringer([&] {
    for (int i = 1; i <= kRounds; ++i) {
      work.store(i, std::memory_order_seq_cst);
      bell.Ring();
    }
  });
  int seen = 0;
  while (seen < kRounds) {
    const std::uint32_t ticket = bell.PrepareSleep();
    const int now = work.load(std::memory_order_seq_cst);
    if (now == seen) bell.Sleep(ticket, -1);
    seen = now;
  }
  ringer.join();
}

TEST(Doorbell, AThreadThatStopsSleepingDoesNotMakeAnotherOneDeaf) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  Doorbell& bell = area->bell(1);
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> prepared{false};
    std::atomic<bool> rung{false};
    bool too_late = false;
    std::thread sleeper([&] {
      const std::uint32_t ticket = bell.PrepareSleep();
      prepared.store(true);
      while (!rung.load()) {
        const auto begin = std::chrono::steady_clock::now();
        bell.Sleep(ticket, 5'000'000);
        too_late = std::chrono::steady_clock::now() - begin > std::chrono::seconds(4);
        if (too_late) return;
      }
    });
    while (!prepared.load()) std::this_thread::yield();
    bell.Sleep(bell.PrepareSleep(), 20'000);  // runs out of time; by then the other one sleeps deeply
    rung.store(true);
    bell.Ring();
    sleeper.join();
    EXPECT_FALSE(too_late);
  }
}

// As an owner's lanes are read: by one thread that sleeps as soon as it has seen nothing, and for ever unless it is
// rung.
// A ringer says "awake" first and wakes then. One that is killed in between leaves a sleeper that looks awake.
TEST(Doorbell, OneWhoseRingerDiedOverItIsRousedAllTheSame) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  Doorbell& bell = area->bell(1);
  std::atomic<bool> woke{false};
  const std::uint32_t ticket = bell.PrepareSleep();
  std::thread sleeper([&] {
    bell.Sleep(ticket, 60'000'000);
    woke.store(true);
  });
  bell.sleeping.store(0);
  bell.Ring();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(woke.load()) << "or this test shows nothing";
  area->RouseDeaf(1);
  sleeper.join();
}

TEST(Doorbell, AnswersWrittenWhileTheirReaderGoesToSleepWakeIt) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  Doorbell& bell = area->bell(1);
  constexpr std::uint32_t kWriters = 3;
  constexpr std::uint32_t kAnswers = 20000;
  std::vector<std::unique_ptr<LaneStorage>> storage;
  std::vector<LaneReader> readers;
  for (std::uint32_t i = 0; i < kWriters; ++i) {
    storage.push_back(std::make_unique<LaneStorage>());
    readers.emplace_back(storage.back()->bytes);
  }
  std::vector<std::thread> writers;
  for (std::uint32_t i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      LaneWriter lane(storage[i]->bytes);
      for (std::uint32_t n = 0; n < kAnswers; ++n) {
        ReplyHeader* header = nullptr;
        while ((header = lane.Begin(sizeof n)) == nullptr) std::this_thread::yield();
        std::memcpy(reinterpret_cast<std::byte*>(header + 1), &n, sizeof n);
        lane.Commit(header);
        lane.Publish();
        bell.Ring();
        if (n % 16 == i) std::this_thread::yield();  // lets the reader come to the end of what there is
      }
    });
  }
  std::vector<std::uint32_t> next(kWriters);
  const auto read = [&] {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kWriters; ++i) {
      if (!readers[i].Ready()) continue;
      EXPECT_TRUE(readers[i].Read(UINT32_MAX, [&](const ReplyHeader&, const std::byte* payload) {
        std::uint32_t n = 0;
        std::memcpy(&n, payload, sizeof n);
        EXPECT_EQ(n, next[i]++);
        ++count;
      }));
    }
    return count;
  };
  for (std::uint32_t seen = 0; seen < kWriters * kAnswers;) {
    const std::uint32_t ticket = bell.PrepareSleep();
    const std::uint32_t now = read();
    if (now == 0) bell.Sleep(ticket, -1);
    seen += now;
  }
  for (std::thread& writer : writers) writer.join();
}

// A worker's main thread and threads of the user that wait in Get share one bell.
TEST(Doorbell, NoneOfSeveralSleepersMissesARing) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  Doorbell& bell = area->bell(1);
  constexpr int kRounds = 10000;
  constexpr std::size_t kSleepers = 3;
  std::array<std::atomic<int>, kSleepers> work{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kSleepers; ++i) {
    threads.emplace_back([&, i] {  // sleeps
      for (int seen = 0; seen < kRounds;) {
        const std::uint32_t ticket = bell.PrepareSleep();
        const int now = work[i].load(std::memory_order_seq_cst);
        if (now == seen) bell.Sleep(ticket, -1);
        seen = now;
      }
    });
    threads.emplace_back([&, i] {  // rings
      for (int round = 1; round <= kRounds; ++round) {
        work[i].store(round, std::memory_order_seq_cst);
        bell.Ring();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NodeArea, TokensAreNeverLostNorMade) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  std::atomic<int> spinning{0};
  std::vector<std::thread> threads;
  for (ProcessId process = 1; process <= 4; ++process) {
    threads.emplace_back([&, process] {
      Doorbell& bell = area->bell(process);
      for (int i = 0; i < 20000; ++i) {
        if (!area->TakeSpinToken(bell)) continue;
        EXPECT_LE(spinning.fetch_add(1) + 1, 2);
        spinning.fetch_sub(1);
        area->ReturnSpinToken(bell);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(area->header().spinners.load(), 0);
}

TEST(NodeArea, NeverMoreSpinnersThanCoresAndACrashGivesItsTokenBack) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  EXPECT_TRUE(area->TakeSpinToken(area->bell(1)));
  EXPECT_TRUE(area->TakeSpinToken(area->bell(2)));
  EXPECT_FALSE(area->TakeSpinToken(area->bell(3)));
  area->Reset(2);
  EXPECT_TRUE(area->TakeSpinToken(area->bell(3)));
  area->ReturnSpinToken(area->bell(1));
  EXPECT_TRUE(area->TakeSpinToken(area->bell(2)));
}

}  // namespace
}  // namespace manta::shm
