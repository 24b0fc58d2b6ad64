#include "store/client.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "store/store_test_util.h"

namespace manta::store {
namespace {

TEST(StoreClient, AnObjectIsReadInPlaceByAnotherProcess) {
  TestNode node(Small(16 << 20));
  TestProcess writer(node, 1);
  TestProcess reader(node, 2);
  Result<Place> place = PutTest(writer, 1, 100'000);
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_TRUE(CheckTest(reader, 1, &*place).ok());
  EXPECT_TRUE(CheckTest(writer, 1, &*place).ok());
  EXPECT_EQ(writer.opens, 0);  // its own mapping serves
  EXPECT_EQ(reader.restores, 0);
}

TEST(StoreClient, WhatIsAllocatedIsAlignedToACacheLine) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  for (const std::uint64_t size : {0, 1, 63, 64, 65, 1000, 1025, 70'001, 3'000'000}) {
    Result<Allocation> room = process.client().Allocate(TestId(size), 1, size);
    ASSERT_TRUE(room.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(room->data) % 64, 0U);
    process.client().Abort(*room);
  }
  EXPECT_EQ(node.stats().objects, 0U);
}

TEST(StoreClient, AnUnsharedObjectIsPutAndFreedWithoutAnyMessage) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  for (std::uint64_t n = 0; n < 10'000; ++n) {
    Result<Place> place = PutTest(process, n, 4096);
    ASSERT_TRUE(place.ok());
    process.client().Free(TestId(n), *place, false);
  }
  EXPECT_EQ(process.requests, 1);
  EXPECT_EQ(process.frees, 0);
  EXPECT_EQ(node.stats().used, 0U);
}

TEST(StoreClient, AFreedObjectIsGoneEvenIfItsRowIsUsedAgain) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  Result<Place> first = PutTest(process, 1, 4096);
  process.client().Free(TestId(1), *first, false);
  Result<Place> second = PutTest(process, 2, 4096);
  EXPECT_EQ(first->row, second->row);
  Result<View> view = process.client().Open(TestId(1), *first);
  ASSERT_FALSE(view.ok());
  EXPECT_EQ(view.status().code(), Code::kLost);
  EXPECT_EQ(process.client().open_views(), 0U);
}

TEST(StoreClient, AnObjectThatIsBeingReadIsFreedWhenItsReaderLetsGo) {
  TestNode node(Small(16 << 20));
  TestProcess writer(node, 1);
  TestProcess reader(node, 2);
  Result<Place> place = PutTest(writer, 1, 4096);
  Result<View> view = reader.client().Open(TestId(1), *place);
  ASSERT_TRUE(view.ok());
  writer.client().Free(TestId(1), *place);
  writer.client().Flush();
  for (std::uint64_t n = 2; n < 3000; ++n) ASSERT_TRUE(PutTest(writer, n, 4096).ok());
  EXPECT_TRUE(Holds(view->data, view->size, 1));
  EXPECT_EQ(node.stats().objects, 2999U);
  reader.client().Close(*view);
  node.Tick();
  EXPECT_EQ(node.stats().objects, 2998U);
}

TEST(StoreClient, FreeingWhatThisProcessReadsWaitsForTheReader) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  Result<Place> place = PutTest(process, 1, 4096);
  Result<View> view = process.client().Open(TestId(1), *place);
  process.client().Free(TestId(1), *place, false);
  EXPECT_EQ(process.client().waiting_frees(), 1U);
  process.client().Flush();
  EXPECT_TRUE(Holds(view->data, view->size, 1));
  EXPECT_EQ(node.stats().objects, 1U);
  process.client().Close(*view);
  node.Tick();
  EXPECT_EQ(node.stats().objects, 0U);
}

TEST(StoreClient, SpaceThatTheDaemonFreedIsUsedAgainByTheBorrower) {
  TestNode node(Small(8 << 20));
  TestProcess process(node, 1);
  for (std::uint64_t n = 0; n < 20'000; ++n) {
    Result<Place> place = PutTest(process, n, 10'000);
    ASSERT_TRUE(place.ok()) << place.status().message();
    process.client().Free(TestId(n), *place, true);
  }
  EXPECT_LE(process.requests, 8);
  EXPECT_GT(process.frees, 300);  // in batches of 64
}

TEST(StoreClient, ALargeObjectThatComesAgainKeepsItsMemory) {
  TestNode node(Small(64 << 20));
  TestProcess process(node, 1);
  const std::byte* at = nullptr;
  for (std::uint64_t n = 0; n < 5; ++n) {
    Result<Allocation> room = process.client().Allocate(TestId(n), 1, 20 << 20);
    ASSERT_TRUE(room.ok());
    if (n != 0) {
      EXPECT_EQ(room->data, at);
    }
    at = room->data;
    process.client().Free(TestId(n), process.client().Seal(*room), false);
  }
  EXPECT_EQ(process.requests, 1);
}

TEST(StoreClient, ALargeObjectFreedByTheDaemonLeavesItsMemoryForTheNext) {
  TestNode node(Small(64 << 20));
  TestProcess process(node, 1);
  for (std::uint64_t n = 0; n < 5; ++n) {
    Result<Place> place = PutTest(process, n, 40 << 20);
    ASSERT_TRUE(place.ok()) << place.status().message();
    process.client().Free(TestId(n), *place, true);
    process.client().Flush();
  }
  EXPECT_EQ(process.requests, 1);
}

TEST(StoreClient, SegmentsInWhichNothingLivesAreGivenBack) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  TestProcess other(node, 2);
  Result<Place> kept = PutTest(process, 1, 5'000);
  Result<Place> large = PutTest(process, 2, 10 << 20);
  process.client().Free(TestId(2), *large, false);
  other.Return(kept->segment);  // not lent to it: ignored
  process.client().ReturnEmpty();
  EXPECT_TRUE(CheckTest(process, 1, &*kept).ok());
  ASSERT_TRUE(PutTest(other, 3, 10 << 20).ok());
  EXPECT_EQ(PutTest(process, 4, 5'000)->segment, kept->segment);
}

TEST(StoreClient, AReaderWithTooManyPinsIsToldSo) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  Result<Place> place = PutTest(process, 1, 100);
  std::vector<View> views;
  for (std::uint32_t i = 0; i < shm::kPinSlots; ++i) views.push_back(*process.client().Open(TestId(1), *place));
  Result<View> more = process.client().Open(TestId(1), *place);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.status().message().find("4096 stored objects in place at once"), std::string::npos);
  for (View& view : views) process.client().Close(view);
  EXPECT_TRUE(CheckTest(process, 1, &*place).ok());
}

TEST(StoreClient, AStaleOrInventedPlaceIsLostAndNotACrash) {
  TestNode node(Small(16 << 20));
  TestProcess process(node, 1);
  Result<Place> place = PutTest(process, 1, 100);
  for (Place wrong :
       {Place{place->segment, 1U << 31, 0, 0, 100}, Place{77, 0, 0, 0, 100}, Place{place->segment, 5, 0, 0, 100},
        Place{place->segment, place->row, place->generation, 0, 99}}) {
    Result<View> view = process.client().Open(TestId(9), wrong);
    ASSERT_FALSE(view.ok());
    EXPECT_EQ(view.status().code(), Code::kLost);
  }
}

// Whatever order objects come and go in, through two processes: every byte is right, and nothing is left.
TEST(StoreClient, RandomPutsAndFreesNeitherLeakNorOverlap) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    TestNode node(Small(32 << 20));
    TestProcess a(node, 1);
    TestProcess b(node, 2);
    std::mt19937 random(seed);
    struct Live {
      std::uint64_t n;
      Place place;
      TestProcess* writer;
    };
    std::vector<Live> live;
    std::uint64_t bytes = 0;
    for (std::uint64_t n = 0; n < 6'000; ++n) {
      TestProcess& process = random() % 2 == 0 ? a : b;
      const std::uint64_t size = random() % (random() % 10 == 0 ? 300'000 : 9'000);
      while (!live.empty() && (bytes + size > 12'000'000 || random() % 3 == 0)) {
        const std::size_t i = random() % live.size();
        ASSERT_TRUE(CheckTest(random() % 2 == 0 ? a : b, live[i].n, &live[i].place).ok());
        live[i].writer->client().Free(TestId(live[i].n), live[i].place, random() % 2 == 0);
        bytes -= live[i].place.size;
        std::swap(live[i], live.back());
        live.pop_back();
      }
      Result<Place> place = PutTest(process, n, size);
      ASSERT_TRUE(place.ok()) << place.status().message();
      live.push_back(Live{n, *place, &process});
      bytes += size;
    }
    for (Live& object : live) {
      ASSERT_TRUE(CheckTest(a, object.n, &object.place).ok());
      object.writer->client().Free(TestId(object.n), object.place);
    }
    a.client().Flush();
    b.client().Flush();
    EXPECT_EQ(node.stats().objects, 0U);
    EXPECT_EQ(node.stats().used, 0U);
  }
}

TEST(StoreClient, ThreadsOfOneProcessShareIt) {
  TestNode node(Small(32 << 20));
  TestProcess process(node, 1);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t n = t << 32 | i;
        Result<Place> place = PutTest(process, n, 1000 + i % 3000);
        ASSERT_TRUE(place.ok()) << place.status().message();
        ASSERT_TRUE(CheckTest(process, n, &*place).ok());
        process.client().Free(TestId(n), *place, i % 2 == 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  process.client().Flush();
  EXPECT_EQ(node.stats().objects, 0U);
}

// A process of node 1 to which all of node 2's objects come by a copy.
class FetchingProcess final : public TestProcess {
 public:
  using TestProcess::TestProcess;
  Result<Place> Fetch(const Id& object, const Place& place, ProcessId owner) override {
    ++fetches;
    EXPECT_EQ(place.node, 2U);
    EXPECT_EQ(owner, OnNode(2, 5));
    for (const auto& [id, copy] : copies) {
      if (id == object) return copy;
    }
    return Status(Code::kLost, "nobody has it");
  }
  std::map<Id, Place> copies;
  int fetches = 0;
};

TEST(StoreClient, WhatIsOnAnotherNodeIsFetchedOnceAndReadInPlace) {
  KeeperConfig config = Small(8 << 20);
  config.number = 1;
  TestNode node(config);
  TestProcess transfers(node, OnNode(1, kCopies));
  FetchingProcess reader(node, OnNode(1, 3));
  const Place far{1, 4, 9, 2, 50'000};
  reader.copies[TestId(1)] = *PutTest(transfers, 1, 50'000);
  for (int i = 0; i < 3; ++i) {
    Place moved;
    Result<View> view = reader.client().Open(TestId(1), far, &moved, OnNode(2, 5));
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_TRUE(Holds(view->data, view->size, 1));
    EXPECT_EQ(moved, far);  // where it was made stays its place
    reader.client().Close(*view);
  }
  EXPECT_EQ(reader.fetches, 1);
  // The copy made room for others: a new one is fetched.
  transfers.client().Free(TestId(1), reader.copies[TestId(1)]);
  transfers.client().Flush();
  reader.copies[TestId(1)] = *PutTest(transfers, 1, 50'000);
  Result<View> view = reader.client().Open(TestId(1), far, nullptr, OnNode(2, 5));
  ASSERT_TRUE(view.ok()) << view.status().message();
  reader.client().Close(*view);
  EXPECT_EQ(reader.fetches, 2);
  EXPECT_EQ(reader.client().Open(TestId(2), far, nullptr, OnNode(2, 5)).status().code(), Code::kLost);
}

}  // namespace
}  // namespace manta::store
