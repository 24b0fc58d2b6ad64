// The protocols of segment.h and pins.h run as threads in one mapping, so that ThreadSanitizer sees them: processes,
// and the clients of the other tests, each have a mapping of their own, in which the same byte has another address.
// Nothing but the protocol orders the threads: places are told through relaxed atomics.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "store/allocator.h"
#include "store/pins.h"
#include "store/store_test_util.h"

namespace manta::store {
namespace {

constexpr std::uint32_t kSegment = 1;
constexpr std::uint64_t kSegmentBytes = 64ULL << 10;  // small, so that every byte is used again all the time

struct Board {
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(PinBoard::kBytes / 8);
  PinBoard pins{reinterpret_cast<std::byte*>(memory.data())};
};

class StoreProtocol : public ::testing::Test {
 protected:
  struct alignas(kPage) Memory {
    std::array<std::byte, kSegmentBytes> bytes{};
  };
  StoreProtocol() { table_.Format(kSegment, false, false); }

  // Writes object n of `bytes` and seals it; calls `leave` when the room is its own. Returns {row + 1, generation} in a
  // word; 0: no room.
  template <typename Leave>
  std::uint64_t Put(SegmentAllocator* allocator, std::uint64_t n, std::uint64_t bytes, Leave leave) {
    Block block;
    if (!allocator->Allocate(bytes, &block)) {
      leave();
      return 0;
    }
    RowCopy what;
    what.object = Id{n, 1};
    what.offset = block.offset;
    what.length = bytes;
    const std::uint32_t generation = table_.Begin(block.row, what);
    leave();
    Fill(table_.base() + block.offset, bytes, n);
    EXPECT_TRUE(table_.Seal(block.row, generation));
    return Named(block.row, generation);
  }
  static std::uint64_t Named(std::uint32_t row, std::uint32_t generation) {
    return static_cast<std::uint64_t>(row + 1) << 32 | generation;
  }
  static std::uint32_t RowOf(std::uint64_t name) { return static_cast<std::uint32_t>(name >> 32) - 1; }
  static std::uint32_t GenerationIn(std::uint64_t name) { return static_cast<std::uint32_t>(name); }

  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  Table table_{memory_->bytes.data(), ShapeOf(kSegmentBytes, false)};
};

// The lender writes objects and frees each soon after, half of them by itself and half through the keeper, while others
// open whatever they heard of last.
TEST_F(StoreProtocol, BytesAreUsedAgainOnlyWhenTheLastReaderHasLetGo) {
  constexpr std::uint64_t kObjects = 5'000;
  constexpr std::uint64_t kMost = 1'000'000;
  constexpr std::uint64_t kReads = 1'000;
  std::array<Board, 3> boards;
  std::array<std::atomic<std::uint64_t>, 4> shown{};
  std::vector<std::atomic<std::uint64_t>> told(kMost + 5);  // what the keeper shall free
  std::atomic<std::uint64_t> reads{0};
  std::atomic<bool> done{false};
  const auto pinned = [&](std::uint32_t row) {
    for (const Board& board : boards) {
      if (board.pins.Holds(PinOf(kSegment, row))) return true;
    }
    return false;
  };

  std::vector<std::thread> threads;
  for (Board& board : boards) {
    threads.emplace_back([&] {
      std::minstd_rand random(static_cast<unsigned>(&board - boards.data()) + 1);
      while (!done.load(std::memory_order_relaxed)) {
        const std::uint64_t name = shown[random() % shown.size()].load(std::memory_order_relaxed);
        if (name == 0) continue;
        const Result<std::uint32_t> slot = board.pins.Take(kSegment, RowOf(name));
        ASSERT_TRUE(slot.ok());
        RowCopy row;
        if (table_.Read(RowOf(name), &row) && row.state == RowState::kSealed && row.generation == GenerationIn(name)) {
          ASSERT_TRUE(manta::store::Holds(table_.base() + row.offset, row.length, row.object.hi));
          std::this_thread::yield();
          ASSERT_TRUE(manta::store::Holds(table_.base() + row.offset, row.length, row.object.hi));
          reads.fetch_add(1, std::memory_order_relaxed);
        }
        board.pins.Release(slot.value());
        // Else the next pin, in the same slot, orders what the release must.
        if (random() % 2 == 0) std::this_thread::yield();
      }
    });
  }
  std::thread keeper([&] {
    std::vector<std::uint64_t> dying;
    std::uint64_t next = 0;
    for (;;) {
      const std::uint64_t name = told[next].load(std::memory_order_acquire);
      if (name == ~0ULL && dying.empty()) return;
      if (name != 0 && name != ~0ULL) {
        ++next;
        // Marked already if the lender found it in use.
        table_.Move(RowOf(name), GenerationIn(name), RowState::kSealed, RowState::kDying);
        dying.push_back(name);
      } else {
        std::this_thread::yield();
      }
      std::erase_if(dying, [&](std::uint64_t old) {
        return !pinned(RowOf(old)) && table_.FreeForBorrower(RowOf(old), GenerationIn(old), RowState::kDying);
      });
    }
  });

  SegmentAllocator allocator(table_);
  std::minstd_rand random(99);
  std::uint64_t tell = 0;
  const auto free = [&](std::uint64_t n, std::uint64_t name) {
    if (name == 0) return;
    if (n % 2 == 0) {
      ASSERT_TRUE(table_.Move(RowOf(name), GenerationIn(name), RowState::kSealed, RowState::kDying));
      if (!pinned(RowOf(name))) {
        ASSERT_TRUE(table_.Move(RowOf(name), GenerationIn(name), RowState::kDying, RowState::kFree));
        allocator.Free(RowOf(name));
        return;
      }
    }
    told[tell++].store(name, std::memory_order_release);
  };
  // Until the readers had their share too, however the scheduler treats them.
  for (std::uint64_t n = 1; n <= kObjects || (reads.load(std::memory_order_relaxed) < kReads && n < kMost);) {
    allocator.TakeFreed(table_);
    const std::uint64_t name = Put(&allocator, n, 64 + random() % 4000, [] {});
    if (name == 0) {  // the keeper waits for readers
      std::this_thread::yield();
      continue;
    }
    free(n, shown[n % shown.size()].exchange(name, std::memory_order_relaxed));
    ++n;
  }
  for (auto& slot : shown) free(1, slot.exchange(0, std::memory_order_relaxed));
  told[tell].store(~0ULL, std::memory_order_release);
  keeper.join();
  done.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) thread.join();
  allocator.TakeFreed(table_);
  EXPECT_EQ(allocator.live(), 0U);
  EXPECT_GE(reads.load(), kReads);
}

// The keeper takes the segment from one lender and gives it to the next, whenever nobody is inside; what a lender left
// there, the next one must not write over.
TEST_F(StoreProtocol, ASegmentThatChangesHandsIsNeverTwoLenders) {
  constexpr ProcessId kLenders = 3;
  constexpr std::uint64_t kLoans = 400;
  std::atomic<std::uint64_t>& gate = table_.header().gate;
  std::mutex keeper;  // the daemon is one thread
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> puts{0};
  std::vector<std::thread> lenders;
  for (ProcessId self = 1; self <= kLenders; ++self) {
    lenders.emplace_back([&, self] {
      std::uint64_t n = static_cast<std::uint64_t>(self) << 32;
      const auto enter = [&](std::uint64_t lease) {
        return gate.compare_exchange_strong(lease, lease | kGateBusy, std::memory_order_seq_cst);
      };
      while (!done.load(std::memory_order_relaxed)) {
        const std::uint64_t lease = gate.load(std::memory_order_acquire) & ~kGateBusy;
        if (GateProcess(lease) != self) {
          std::this_thread::yield();
          continue;
        }
        SegmentAllocator allocator(table_);
        while (enter(lease)) {
          allocator.TakeFreed(table_);
          ++n;
          const std::uint64_t name =
              Put(&allocator, n, 64 + n % 900, [&] { gate.store(lease, std::memory_order_release); });
          if (name == 0) continue;
          RowCopy row;
          ASSERT_TRUE(table_.Read(RowOf(name), &row));
          ASSERT_TRUE(manta::store::Holds(table_.base() + row.offset, row.length, n));
          puts.fetch_add(1, std::memory_order_relaxed);
          if (enter(lease)) {
            ASSERT_TRUE(table_.Move(RowOf(name), GenerationIn(name), RowState::kSealed, RowState::kFree));
            allocator.Free(RowOf(name));
            gate.store(lease, std::memory_order_release);
          } else {  // it is another's by now: the daemon frees
            const std::lock_guard lock(keeper);
            ASSERT_TRUE(table_.FreeForBorrower(RowOf(name), GenerationIn(name), RowState::kSealed));
          }
        }
      }
    });
  }
  std::uint64_t held = kNoGate;
  for (std::uint32_t loan = 1; loan <= kLoans;) {
    {
      const std::lock_guard lock(keeper);
      std::uint64_t seen = held;
      if (gate.compare_exchange_strong(seen, kNoGate, std::memory_order_seq_cst)) {
        held = Gate(1 + loan % kLenders, loan);
        table_.header().freed.store(0, std::memory_order_relaxed);
        gate.store(held, std::memory_order_seq_cst);
        ++loan;
      }
    }
    const std::uint64_t before = puts.load(std::memory_order_relaxed);
    while (puts.load(std::memory_order_relaxed) == before) std::this_thread::yield();
  }
  done.store(true, std::memory_order_relaxed);
  std::uint64_t seen = held;
  while (!gate.compare_exchange_weak(seen, kNoGate, std::memory_order_seq_cst)) seen = held;
  for (std::thread& lender : lenders) lender.join();
  EXPECT_EQ(SegmentAllocator(table_).live(), 0U);
  EXPECT_GE(puts.load(), kLoans);
}

}  // namespace
}  // namespace manta::store
