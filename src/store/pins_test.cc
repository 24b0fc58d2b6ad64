#include "store/pins.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "store/store_test_util.h"

namespace manta::store {
namespace {

TEST(PinBoard, HoldsWhatWasTakenUntilItIsReleased) {
  std::vector<std::uint64_t> memory(PinBoard::kBytes / 8);
  PinBoard board(reinterpret_cast<std::byte*>(memory.data()));
  Result<std::uint32_t> slot = board.Take(3, 0);
  ASSERT_TRUE(slot.ok());
  EXPECT_TRUE(board.Holds(PinOf(3, 0)));
  EXPECT_FALSE(board.Holds(PinOf(3, 1)));
  EXPECT_EQ(board.count(), 1U);
  board.Release(*slot);
  EXPECT_FALSE(board.Holds(PinOf(3, 0)));
}

TEST(PinBoard, AMarkWrittenByAMadProcessIsNotBelieved) {
  std::vector<std::uint64_t> memory(PinBoard::kBytes / 8, ~0ULL);
  PinBoard board(reinterpret_cast<std::byte*>(memory.data()));
  EXPECT_EQ(board.count(), shm::kPinSlots);
}

// The protocol of segment.h and pins.h run as threads, so that TSan can see it. One thread writes objects and
// frees them at once, through the daemon or by itself; others open whatever place they heard of last, mostly
// just as it goes. Whoever gets a view reads the right bytes, to the last.
TEST(PinBoard, NoReaderEverSeesAStaleByte) {
  KeeperConfig config;
  config.capacity = 4 << 20;
  config.huge = false;
  TestNode node(config);
  TestProcess writer(node, 1);
  struct Slot {
    std::mutex mutex;
    std::uint64_t n = 0;
    Place place;
  };
  std::array<Slot, 4> shown;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> misses{0};

  std::vector<std::thread> readers;
  for (ProcessId id = 2; id <= 4; ++id) {
    readers.emplace_back([&, id] {
      std::minstd_rand random(id);
      auto process = std::make_unique<TestProcess>(node, id);
      while (!done.load(std::memory_order_relaxed)) {
        std::uint64_t n = 0;
        Place place;
        {
          Slot& slot = shown[random() % shown.size()];
          const std::lock_guard lock(slot.mutex);
          n = slot.n;
          place = slot.place;
        }
        if (n == 0) continue;
        Result<View> view = process->client().Open(TestId(n), place);
        if (!view.ok()) {
          ASSERT_EQ(view.status().code(), Code::kLost) << view.status().message();
          ++misses;
          continue;
        }
        ASSERT_TRUE(Holds(view->data, view->size, n));
        std::this_thread::yield();
        ASSERT_TRUE(Holds(view->data, view->size, n));
        ++reads;
        if (random() % 512 == 0) {  // killed with its pin held; another comes in its place
          process.reset();
          process = std::make_unique<TestProcess>(node, id);
        } else {
          process->client().Close(*view);
        }
      }
    });
  }
  const std::int64_t end = base::NowMicros() + 1'500'000;
  std::uint64_t n = 1;
  for (; base::NowMicros() < end; ++n) {
    Result<Place> place = PutTest(writer, n, 256 + n % 2000);
    ASSERT_TRUE(place.ok()) << place.status().message();
    Slot& slot = shown[n % shown.size()];
    std::uint64_t old = 0;
    Place old_place;
    {
      const std::lock_guard lock(slot.mutex);
      old = std::exchange(slot.n, n);
      old_place = std::exchange(slot.place, *place);
    }
    if (old == 0) continue;
    writer.client().Free(TestId(old), old_place);
    if (n % 3 == 0) writer.client().Flush();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (Slot& slot : shown) writer.client().Free(TestId(slot.n), slot.place);
  writer.client().Flush();
  node.Tick();
  EXPECT_EQ(node.stats().objects, 0U);
  EXPECT_GT(reads.load(), 100U);
  RecordProperty("reads", static_cast<int>(reads.load()));
  RecordProperty("misses", static_cast<int>(misses.load()));
}

// The same with the disk in between: objects leave and come back while they are read.
TEST(PinBoard, ReadersAndTheSpillerAgree) {
  KeeperConfig config;
  config.capacity = 2 << 20;
  config.huge = false;
  config.spill_folder = ::testing::TempDir();
  TestNode node(config);
  TestProcess writer(node, 1);
  std::vector<Place> places;
  for (std::uint64_t n = 0; n < 60; ++n) places.push_back(*PutTest(writer, n, 100'000));
  std::vector<std::thread> readers;
  for (ProcessId id = 2; id <= 4; ++id) {
    readers.emplace_back([&, id] {
      std::minstd_rand random(id);
      TestProcess process(node, id);
      std::vector<Place> at = places;
      for (int i = 0; i < 300; ++i) {
        const std::uint64_t n = random() % at.size();
        const Status same = CheckTest(process, n, &at[n]);
        ASSERT_TRUE(same.ok()) << same.message();
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace manta::store
