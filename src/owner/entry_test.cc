#include "owner/entry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace manta::owner {
namespace {

// The table is the process's: each test leaves it as it was.
class EntryTableTest : public ::testing::Test {
 protected:
  void SetUp() override { live_ = table_.live(); }
  void TearDown() override { EXPECT_EQ(table_.live(), live_); }
  Entry* New(std::uint64_t number, std::uint32_t refs = 1) {
    return table_.Allocate(Id{number, 1}, Origin::kPut, refs, 1);
  }

  EntryTable& table_ = EntryTable::Get();
  std::lock_guard<base::SpinMutex> lock_{table_.mutex};
  std::size_t live_ = 0;
};

TEST_F(EntryTableTest, FindGivesTheEntryOnlyInItsOwnGeneration) {
  Entry* entry = New(1);
  const std::uint32_t index = entry->index;
  const std::uint32_t generation = entry->generation;
  EXPECT_EQ(table_.Find(index, generation), entry);
  EXPECT_EQ(table_.Find(index, generation - 1), nullptr);
  EXPECT_EQ(table_.Find(index, generation + 1), nullptr);
  EXPECT_EQ(table_.Find(index, generation + 2), nullptr);
  table_.DisposeForeign(entry);
  EXPECT_EQ(table_.Find(index, generation), nullptr);      // stale
  EXPECT_EQ(table_.Find(index, generation + 1), nullptr);  // the place's number while it is free
  Entry* next = New(2);
  ASSERT_EQ(next, entry);  // the place is used again …
  EXPECT_EQ(table_.Find(index, generation), nullptr);
  EXPECT_EQ(table_.Find(index, next->generation), next);
  EXPECT_EQ(next->id, (Id{2, 1}));
  table_.DisposeForeign(next);
}

TEST_F(EntryTableTest, FindSurvivesWildIndexes) {
  Entry* entry = New(1);
  for (const std::uint32_t index : {0x7fffffffU, 0x80000000U, 0xfffffc00U, 0xffffffffU}) {
    for (const std::uint32_t generation : {0U, 1U, std::uint32_t{entry->generation}, 0xffffffffU}) {
      EXPECT_EQ(table_.Find(index, generation), nullptr) << index << ' ' << generation;
    }
  }
  table_.DisposeForeign(entry);
}

TEST_F(EntryTableTest, APlaceThatWasNeverUsedIsNotFound) {
  Entry* entry = New(1);
  const std::uint32_t first = entry->index - entry->index % 1024;
  for (std::uint32_t index = first; index < first + 1024; ++index) {
    EXPECT_EQ(table_.Find(index, 0), nullptr);
    EXPECT_EQ(table_.Find(index, 1U << 30), nullptr);
  }
  table_.DisposeForeign(entry);
}

TEST_F(EntryTableTest, DisposingOfALongChainDoesNotOverflowTheStack) {
  Entry* inner = nullptr;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    Entry* outer = New(i);
    if (inner != nullptr) outer->more().contained.push_back(inner);
    inner = outer;
  }
  EXPECT_EQ(table_.live(), live_ + 100'000);
  table_.DisposeForeign(inner);
  EXPECT_EQ(table_.live(), live_);
}

TEST_F(EntryTableTest, WhatSomebodyElseCountsOutlivesWhatContainsIt) {
  Entry* shared = New(1, 2);
  Entry* outer = New(2);
  outer->more().contained.push_back(shared);
  const std::uint32_t generation = shared->generation;
  table_.DisposeForeign(outer);
  EXPECT_EQ(table_.Find(shared->index, generation), shared);
  EXPECT_EQ(shared->refs.load(), 1U);
  table_.DisposeForeign(shared);
}

TEST_F(EntryTableTest, EveryKindOfCountIsGivenBackAndTheValueFreed) {
  Entry* inner = New(1, 5);
  Entry* outer = New(2);
  Extra& extra = outer->more();
  extra.siblings.push_back(inner);
  extra.arguments.push_back(inner);
  extra.contained.push_back(inner);
  extra.dependents.push_back(inner);
  extra.holes.push_back({0, inner});
  outer->where = Where::kHeap;  // the leak checker looks whether it goes
  outer->heap = static_cast<std::byte*>(std::malloc(100));
  inner->where = Where::kFailure;
  inner->failure = new Failure();
  table_.DisposeForeign(outer);
}

TEST_F(EntryTableTest, ForEachSeesTheLivingOnly) {
  std::vector<Entry*> entries;
  for (std::uint64_t i = 0; i < 3000; ++i) entries.push_back(New(i));
  for (std::size_t i = 0; i < entries.size(); i += 2) table_.DisposeForeign(entries[i]);
  std::size_t seen = 0;
  table_.ForEach([&](Entry* entry) { seen += entry->id.hi % 2; });
  EXPECT_EQ(seen, 1500U);
  for (std::size_t i = 1; i < entries.size(); i += 2) table_.DisposeForeign(entries[i]);
}

}  // namespace
// Without the mutex, so not a test of the fixture above.
TEST(SmallEntries, AreFoundByNobodyAndUsedAgain) {
  EntryTable& table = EntryTable::Get();
  Entry* entry = table.AllocateSmall(Id{5, 5}, 1);
  entry->where = Where::kInline;
  EXPECT_TRUE(entry->plain());
  {
    const std::lock_guard lock(table.mutex);
    EXPECT_EQ(table.Find(entry->index, entry->generation), nullptr) << "no call has its result there";
    bool seen = false;
    table.ForEach([&](const Entry* other) { seen |= other == entry; });
    EXPECT_FALSE(seen) << "it may change without the mutex";
    table.ForEachSmall([&](const Entry* other) { seen |= other == entry; });
    EXPECT_TRUE(seen);
  }
  table.FreeSmall(entry);
  EXPECT_EQ(table.AllocateSmall(Id{6, 6}, 1), entry);
  table.FreeSmall(entry);
}

TEST(SmallEntries, OneThatOthersKnowIsNotPlainAndGoesBackByTheTable) {
  EntryTable& table = EntryTable::Get();
  for (int what = 0; what < 4; ++what) {
    Entry* entry = table.AllocateSmall(Id{5, 5}, 1);
    entry->where = Where::kInline;
    if (what == 0) entry->flags |= Entry::kMapped;
    if (what == 1) entry->lineage = 1;
    if (what == 2) entry->holds = 1;
    if (what == 3) entry->more();
    EXPECT_FALSE(entry->plain()) << what;
    const std::lock_guard lock(table.mutex);
    const std::size_t live = table.live();
    table.DisposeForeign(entry);
    EXPECT_EQ(table.live(), live);
  }
}

TEST(SmallEntries, AThreadThatEndsGivesItsStockBack) {
  EntryTable& table = EntryTable::Get();
  std::vector<Entry*> first;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) first.push_back(table.AllocateSmall(Id{5, 5}, 1));
    for (Entry* entry : first) entry->where = Where::kInline;
    for (Entry* entry : first) table.FreeSmall(entry);
  }).join();
  bool again = false;
  std::thread([&] {
    Entry* entry = table.AllocateSmall(Id{5, 5}, 1);
    again = std::find(first.begin(), first.end(), entry) != first.end();
    entry->where = Where::kInline;
    table.FreeSmall(entry);
  }).join();
  EXPECT_TRUE(again);
}

}  // namespace manta::owner
