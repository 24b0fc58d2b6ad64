#include "store/allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "store/store_test_util.h"

namespace manta::store {
namespace {

// A segment in plain memory.
struct Heap {
  explicit Heap(std::uint64_t bytes, bool whole = false)
      : memory(bytes / 4096 + 1), table(reinterpret_cast<std::byte*>(memory.data()), ShapeOf(bytes, whole)) {
    table.Format(1, whole, false);
  }
  struct alignas(4096) Page {
    std::byte bytes[4096] = {};
  };
  std::vector<Page> memory;
  Table table;

  // What the client does with a block.
  void Write(const Block& block, std::uint64_t bytes) const {
    RowCopy row;
    row.offset = block.offset;
    row.length = bytes;
    table.Seal(block.row, table.Begin(block.row, row));
  }
};

TEST(SegmentAllocator, BlocksNeverOverlapAndAllRoomComesBack) {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    Heap heap(1 << 20);
    SegmentAllocator allocator(heap.table);
    const std::uint64_t room = allocator.free_bytes();
    std::mt19937 random(seed);
    std::map<std::uint64_t, Block> live;  // by offset
    std::map<std::uint32_t, std::uint64_t> rows;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t size = random() % (random() % 8 == 0 ? 100'000 : 5'000);
      Block block;
      if (random() % 2 == 0 && allocator.Allocate(size, &block)) {
        ASSERT_GE(block.bytes, size);
        ASSERT_TRUE(heap.table.Inside(block.offset, block.bytes));
        const auto next = live.lower_bound(block.offset);
        if (next != live.end()) {
          ASSERT_LE(block.offset + block.bytes, next->first);
        }
        if (next != live.begin()) {
          const Block& before = std::prev(next)->second;
          ASSERT_LE(before.offset + before.bytes, block.offset);
        }
        ASSERT_TRUE(rows.emplace(block.row, block.offset).second);
        live[block.offset] = block;
        heap.Write(block, size);
      } else if (!live.empty()) {
        auto victim = live.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(random() % live.size()));
        const std::uint32_t row = victim->second.row;
        ASSERT_TRUE(heap.table.Move(row, GenerationOf(heap.table.row(row).word), RowState::kSealed, RowState::kFree));
        allocator.Free(row);
        rows.erase(row);
        live.erase(victim);
      }
      if (i % 1000 == 999) {  // the segment changes hands
        allocator = SegmentAllocator(heap.table);
        ASSERT_EQ(allocator.live(), live.size());
      }
    }
    for (const auto& [offset, block] : live) allocator.Free(block.row);
    EXPECT_EQ(allocator.free_bytes(), room);
    EXPECT_EQ(allocator.live(), 0U);
    Block all;
    EXPECT_TRUE(allocator.Allocate(room, &all));
  }
}

TEST(SegmentAllocator, AWholeSegmentIsJustLargeEnough) {
  const std::uint64_t bytes = 5'000'000;
  Heap heap(WholeSizeFor(bytes, kHugePage), true);
  SegmentAllocator allocator(heap.table);
  Block block;
  ASSERT_TRUE(allocator.Allocate(heap.table.shape().room(), &block));
  EXPECT_FALSE(allocator.Allocate(1, &block));
  allocator.Free(0);
  EXPECT_TRUE(allocator.Allocate(bytes, &block));
}

TEST(SegmentAllocator, ARowFreedWhileItWasBuiltIsNotFreedTwice) {
  Heap heap(1 << 20);
  SegmentAllocator first(heap.table);
  Block block;
  ASSERT_TRUE(first.Allocate(1000, &block));
  heap.Write(block, 1000);
  // The daemon frees it for the borrower, who builds from the table before it looks at the stack.
  ASSERT_TRUE(heap.table.FreeForBorrower(block.row, 0, RowState::kSealed));
  SegmentAllocator second(heap.table);
  Block again;
  ASSERT_TRUE(second.Allocate(1000, &again));
  EXPECT_EQ(again.row, block.row);
  heap.Write(again, 1000);
  second.TakeFreed(heap.table);
  EXPECT_EQ(second.live(), 1U);
}

TEST(SegmentAllocator, RowsThatOverlapAreNotGivenOut) {
  Heap heap(1 << 20);
  for (std::uint32_t row = 0; row < 2; ++row) {
    RowCopy copy;
    copy.offset = heap.table.shape().data + row * 4096;
    copy.length = row == 0 ? 100'000 : 64;
    heap.table.Seal(row, heap.table.Begin(row, copy));
  }
  SegmentAllocator allocator(heap.table);
  Block block;
  while (allocator.Allocate(64, &block)) EXPECT_GE(block.offset, heap.table.shape().data + 100'000);
}

}  // namespace
}  // namespace manta::store
