#include "shm/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <set>

namespace manta::shm {
namespace {

TEST(ChunkAllocator, GivesTheMostRecentlyFreedRunOfTheSizeAskedFor) {
  ChunkAllocator chunks;
  const std::uint64_t a = chunks.Allocate(kChunkBytes);
  const std::uint64_t b = chunks.Allocate(1);
  const std::uint64_t c = chunks.Allocate(3 * kChunkBytes - 7);
  EXPECT_EQ(chunks.used_bytes(), 5 * kChunkBytes);
  chunks.Free(c, 3 * kChunkBytes - 7);
  chunks.Free(b, 1);
  chunks.Free(a, kChunkBytes);
  EXPECT_EQ(chunks.used_bytes(), 0U);
  EXPECT_EQ(chunks.Allocate(kChunkBytes - 1), a);
  EXPECT_EQ(chunks.Allocate(3 * kChunkBytes), c);
  EXPECT_EQ(chunks.Allocate(kChunkBytes), b);
  EXPECT_EQ(chunks.used_bytes(), 5 * kChunkBytes);
}

TEST(ChunkAllocator, HandsOutDisjointRunsThatAreValidUntilTheArenaIsUsedUp) {
  ChunkAllocator chunks;
  constexpr std::uint64_t kRun = 1ULL << 30;
  std::set<std::uint64_t> runs;
  std::uint64_t offset = 0;
  while ((offset = chunks.Allocate(kRun)) != 0) {
    EXPECT_TRUE(Arena::Valid(offset, kRun));
    EXPECT_TRUE(runs.empty() || offset >= *runs.rbegin() + kRun);
    EXPECT_TRUE(runs.insert(offset).second);
  }
  EXPECT_EQ(runs.size(), 15U);  // the header takes a little of the 16
  EXPECT_EQ(chunks.used_bytes(), 15 * kRun);
  while ((offset = chunks.Allocate(1)) != 0) EXPECT_TRUE(Arena::Valid(offset, kChunkBytes));
  EXPECT_EQ(chunks.used_bytes(), kChunksEnd - kChunksOffset);
  EXPECT_EQ(chunks.Allocate(kRun), 0U);
  chunks.Free(*runs.begin(), kRun);
  EXPECT_EQ(chunks.Allocate(kRun), *runs.begin());
}

TEST(ChunkAllocator, RefusesARunThatNoArenaHasRoomFor) {
  ChunkAllocator chunks;
  EXPECT_EQ(chunks.Allocate(kArenaBytes), 0U);
  EXPECT_EQ(chunks.Allocate(1ULL << 63), 0U);
  EXPECT_EQ(chunks.Allocate(~0ULL), 0U);
  EXPECT_EQ(chunks.used_bytes(), 0U);
  EXPECT_EQ(chunks.Allocate(kChunksEnd - kChunksOffset), kChunksOffset);
}

TEST(Arena, OffsetsOutsideOrUnalignedAreNotValid) {
  EXPECT_TRUE(Arena::Valid(kChunksOffset, 1));
  EXPECT_TRUE(Arena::Valid(kArenaBytes - 8, 8));
  EXPECT_TRUE(Arena::Valid(kChunksOffset, kArenaBytes - kChunksOffset));
  EXPECT_FALSE(Arena::Valid(0, 8));
  EXPECT_FALSE(Arena::Valid(kPinBoardOffset, 8));  // nobody's business
  EXPECT_FALSE(Arena::Valid(kChunksOffset - 8, 8));
  EXPECT_FALSE(Arena::Valid(kChunksOffset + 4, 8));
  EXPECT_FALSE(Arena::Valid(kArenaBytes - 8, 9));
  EXPECT_FALSE(Arena::Valid(kArenaBytes, 8));
  EXPECT_FALSE(Arena::Valid(~7ULL, 16));  // the sum wraps around
  EXPECT_FALSE(Arena::Valid(kChunksOffset, ~0ULL));
  EXPECT_FALSE(Arena::Valid(kChunksOffset, kArenaBytes));
}

TEST(Arena, WhatOneProcessWritesAnotherReadsThroughTheDescriptor) {
  Result<Arena> mine = Arena::Create();
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  std::strcpy(reinterpret_cast<char*>(mine->at(kArenaBytes - 8)), "hello");
  Result<Arena> theirs = Arena::Open(base::Fd(dup(mine->fd())));
  ASSERT_TRUE(theirs.ok()) << theirs.status().message();
  EXPECT_STREQ(reinterpret_cast<const char*>(theirs->at(kArenaBytes - 8)), "hello");
  EXPECT_EQ(reinterpret_cast<const ArenaHeader*>(theirs->at(0))->pid, static_cast<std::uint32_t>(getpid()));
}

TEST(Arena, OtherMemoryIsNotOpenedAsOne) {
  Result<base::Fd> fd = MakeMemory("other", kArenaBytes);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(Arena::Open(std::move(*fd)).status().code(), Code::kCorrupt);
}

TEST(Arena, AFileThatIsTooShortIsRefusedBeforeItIsTouched) {
  Result<base::Fd> fd = MakeMemory("short", 0);
  ASSERT_TRUE(fd.ok());
  EXPECT_FALSE(Arena::Open(std::move(*fd)).ok());
}

}  // namespace
}  // namespace manta::shm
