#include "store/keeper.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "store/store_test_util.h"

namespace manta::store {
namespace {

// A folder of the test's own, empty again at the end or the test fails.
class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "manta-spill-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    if (mounted_) umount(path_.c_str());
    EXPECT_EQ(rmdir(path_.c_str()), 0) << "something was left in " << path_;
  }
  bool MountTiny() {
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m") == 0;
    return mounted_;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST(Keeper, ThreeTimesTheStoreIsSpilledAndReadBackUnchanged) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  TestNode node(config);
  TestProcess writer(node, 1);
  TestProcess reader(node, 2);
  std::vector<Place> places;
  std::mt19937 random(7);
  std::uint64_t bytes = 0;
  for (std::uint64_t n = 0; bytes < (24U << 20); ++n) {
    const std::uint64_t size = n % 20 == 0 ? 1'500'000 : random() % 100'000;
    Result<Place> place = PutTest(writer, n, size);
    ASSERT_TRUE(place.ok()) << place.status().message();
    places.push_back(*place);
    bytes += size;
  }
  EXPECT_GT(node.stats().spilled, 14U << 20);
  EXPECT_LE(node.stats().segments, 8U << 20);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t n = 0; n < places.size(); ++n) {
      const Status same = CheckTest(n % 2 == 0 ? reader : writer, n, &places[n]);
      ASSERT_TRUE(same.ok()) << same.message();
    }
  }
  EXPECT_LE(node.stats().segments, 8U << 20);
  for (std::uint64_t n = 0; n < places.size(); ++n) writer.client().Free(TestId(n), places[n]);
  writer.client().Flush();
  EXPECT_EQ(node.stats().objects, 0U);
  EXPECT_EQ(node.stats().spilled, 0U);
}

TEST(Keeper, ASpilledObjectIsFreedByItsOldPlace) {
  Folder folder;
  KeeperConfig config = Small(2 << 20);
  config.spill_folder = folder.path();
  TestNode node(config);
  TestProcess process(node, 1);
  std::vector<Place> places;
  for (std::uint64_t n = 0; n < 60; ++n) places.push_back(*PutTest(process, n, 100'000));
  Place moved = places[0];
  ASSERT_TRUE(CheckTest(process, 0, &moved).ok());  // brought back: now both in memory and on disk
  EXPECT_NE(moved, places[0]);
  for (std::uint64_t n = 0; n < 60; ++n) process.client().Free(TestId(n), places[n]);
  process.client().Flush();
  EXPECT_EQ(node.stats().objects, 0U);
  EXPECT_EQ(node.stats().spilled, 0U);
}

TEST(Keeper, PinnedObjectsStayInMemory) {
  Folder folder;
  KeeperConfig config = Small(4 << 20);
  config.spill_folder = folder.path();
  TestNode node(config);
  TestProcess writer(node, 1);
  TestProcess reader(node, 2);
  Result<Place> pinned = PutTest(writer, 0, 200'000);
  Result<View> view = reader.client().Open(TestId(0), *pinned);
  ASSERT_TRUE(view.ok());
  std::vector<Place> places{*pinned};
  for (std::uint64_t n = 1; n < 100; ++n) places.push_back(*PutTest(writer, n, 200'000));
  EXPECT_GT(node.stats().spilled, 10'000'000U);
  EXPECT_TRUE(Holds(view->data, view->size, 0));
  EXPECT_TRUE(CheckTest(writer, 0, pinned.ok() ? &*pinned : nullptr).ok());
  EXPECT_EQ(*pinned, places[0]);  // it never moved
  reader.client().Close(*view);
}

TEST(Keeper, AWaitingWriterGoesOnWhenSomethingIsFreed) {
  KeeperConfig config = Small(8 << 20);
  config.wait_us = 30'000'000;
  TestNode node(config);
  TestProcess holder(node, 1);
  TestProcess writer(node, 2);
  Result<Place> large = PutTest(holder, 1, 6 << 20);
  ASSERT_TRUE(large.ok());
  std::thread waits([&] {
    Result<Place> place = PutTest(writer, 2, 5 << 20);
    EXPECT_TRUE(place.ok()) << place.status().message();
  });
  while (node.stats().waiting == 0) std::this_thread::yield();
  holder.client().Free(TestId(1), *large);
  holder.client().Flush();
  waits.join();
  EXPECT_EQ(node.stats().objects, 1U);
}

TEST(Keeper, AWaitingWriterGoesOnWhenAnotherProcessFreesWithoutAMessage) {
  KeeperConfig config = Small(8 << 20);
  config.wait_us = 30'000'000;
  TestNode node(config);
  TestProcess holder(node, 1);
  TestProcess writer(node, 2);
  Result<Place> large = PutTest(holder, 1, 6 << 20);
  std::thread waits([&] { EXPECT_TRUE(PutTest(writer, 2, 5 << 20).ok()); });
  while (node.stats().waiting == 0) std::this_thread::yield();
  holder.client().Free(TestId(1), *large, false);
  waits.join();
  EXPECT_EQ(holder.frees, 0);
}

TEST(Keeper, AnObjectLargerThanTheStoreFailsAtOnceWithBothSizes) {
  KeeperConfig config = Small(8 << 20);
  config.wait_us = 30'000'000;
  TestNode node(config);
  TestProcess process(node, 1);
  for (const std::uint64_t bytes : {std::uint64_t{9} << 20, ~std::uint64_t{0}}) {
    Result<Allocation> room = process.client().Allocate(TestId(1), 1, bytes);
    ASSERT_FALSE(room.ok());
    EXPECT_EQ(room.status().code(), Code::kOutOfMemory);
  }
  EXPECT_EQ(process.client().Allocate(TestId(1), 1, 9 << 20).status().message(),
            "cannot store object (9.0 MiB): it is larger than node n1's whole store of 8.0 MiB; raise "
            "Config::store_bytes or split the object");
}

TEST(Keeper, AFullStoreSaysWhoHoldsItAndWhatToDo) {
  TestNode node(Small(8 << 20));
  TestProcess holder(node, 7);
  TestProcess writer(node, 8);
  Result<Place> large = PutTest(holder, 1, 6 << 20);
  ASSERT_TRUE(large.ok());
  Result<Place> place = PutTest(writer, 2, 3 << 20);
  ASSERT_FALSE(place.ok());
  EXPECT_EQ(place.status().code(), Code::kOutOfMemory);
  EXPECT_EQ(place.status().message(),
            "cannot store object (3.0 MiB): node n1's store has 2.0 MiB free of 8.0 MiB after evicting all it may, and "
            "spilling is off; raise Config::store_bytes or drop references (process 7 holds 6.0 MiB), or set "
            "Config::spill_folder");
}

TEST(Keeper, ObjectsOfAnySizeFillTheStore) {
  constexpr std::uint64_t kStore = 64 << 20;
  for (const std::uint64_t size : {100'000U, 1'000'000U, (2U << 20) + 100U, 3U << 20, 4U << 20, 9U << 20}) {
    TestNode node(Small(kStore));
    TestProcess process(node, 1);
    std::uint64_t stored = 0;
    for (std::uint64_t n = 0; PutTest(process, n, size).ok(); ++n) stored += size;
    EXPECT_GE(stored, kStore / 100 * 82) << size;
  }
}

TEST(Keeper, AFullStoreOfPinnedObjectsAndAFullDiskSayWhatToDo) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  config.disk = shm::DiskShare(2 << 20);
  TestNode node(config);
  TestProcess holder(node, 7);
  Result<Place> large = PutTest(holder, 1, 6 << 20);
  Result<View> view = holder.client().Open(TestId(1), *large);
  Result<Place> place = PutTest(holder, 2, 3 << 20);
  ASSERT_FALSE(place.ok());
  EXPECT_EQ(
      place.status().message(),
      "cannot store object (3.0 MiB): node n1's store has 2.0 MiB free of 8.0 MiB after evicting and spilling all "
      "unpinned objects, and cannot make a file of 3.1 MiB in '" +
          folder.path() +
          "': 0 B of 2.0 MiB allowed are on disk already; raise Config::spill_bytes; raise Config::store_bytes or "
          "drop references (process 7 holds 6.0 MiB)");
  holder.client().Close(*view);
  holder.client().Free(TestId(1), *large);
  EXPECT_TRUE(PutTest(holder, 3, 3 << 20).ok());
}

TEST(Keeper, WhatFindsNoMemoryBesidePinnedObjectsIsWrittenToDiskWithOneWarning) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  config.wait_us = 60'000'000;
  config.disk_after_us = 1'000;
  TestNode node(config);
  std::vector<std::string> warnings;
  node.With([&](Keeper& keeper, std::int64_t) {
    keeper.SetOnWarning([&](const std::string& text) { warnings.push_back(text); });
  });
  TestProcess holder(node, 7);
  TestProcess other(node, 8);
  Result<Place> large = PutTest(holder, 1, 7 << 20);
  Result<View> pinned = holder.client().Open(TestId(1), *large);
  std::vector<Place> places;
  for (std::uint64_t n = 2; n < 12; ++n) {
    Result<Place> place = PutTest(holder, n, n % 2 == 0 ? 3 << 20 : 100'000);
    ASSERT_TRUE(place.ok()) << place.status().message();
    places.push_back(*place);
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("is full of objects in use: an object of 3.0 MiB is written to"), std::string::npos);
  EXPECT_LE(node.stats().segments, 8U << 20);
  EXPECT_GE(node.stats().spilled, 15U << 20);
  for (std::uint64_t n = 2; n < 12; ++n) EXPECT_TRUE(CheckTest(other, n, &places[n - 2]).ok());
  for (std::uint64_t n = 2; n < 12; ++n) holder.client().Free(TestId(n), places[n - 2]);
  holder.client().Flush();
  holder.Kill();
  EXPECT_EQ(node.stats().spilled, 0U);
}

// All the arguments of a task, several times what the store has, are read at once.
TEST(Keeper, MoreThanTheStoreCanBePinnedAtOnce) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  TestNode node(config);
  TestProcess writer(node, 1);
  TestProcess reader(node, 2);
  std::vector<Place> places;
  for (std::uint64_t n = 0; n < 10; ++n) places.push_back(*PutTest(writer, n, 2'500'000));
  std::vector<View> views;
  for (std::uint64_t n = 0; n < 10; ++n) {
    Result<View> view = reader.client().Open(TestId(n), places[n], &places[n]);
    ASSERT_TRUE(view.ok()) << view.status().message();
    views.push_back(*view);
  }
  EXPECT_LE(node.stats().segments, 8U << 20);
  // Freed while it is read: the bytes stay until the readers have let go.
  for (std::uint64_t n = 0; n < 10; ++n) writer.client().Free(TestId(n), places[n]);
  writer.client().Flush();
  for (std::uint64_t n = 0; n < 10; ++n) EXPECT_TRUE(Holds(views[n].data, views[n].size, n)) << n;
  for (View& view : views) reader.client().Close(view);
  node.Tick();
  EXPECT_EQ(node.stats().spilled, 0U);
  EXPECT_EQ(node.stats().objects, 0U);
}

TEST(Keeper, AMappedObjectThatNobodyReadsIsUnmappedAndMappedAgain) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  config.idle_us = 0;
  TestNode node(config);
  TestProcess writer(node, 1);
  TestProcess reader(node, 2);
  Place first = *PutTest(writer, 1, 5 << 20);
  Place second = *PutTest(writer, 2, 5 << 20);  // the first goes to disk
  Result<View> pinned = writer.client().Open(TestId(2), second);
  ASSERT_TRUE(pinned.ok());
  for (int round = 0; round < 3; ++round) {
    const std::uint32_t generation = first.generation;
    const Status same = CheckTest(reader, 1, &first);
    ASSERT_TRUE(same.ok()) << same.message();
    EXPECT_TRUE(round == 0 || first.generation != generation);
    node.With([](Keeper& keeper, std::int64_t now) { keeper.Tick(now + 1'000'000); });
    EXPECT_EQ(reader.client().open_views(), 0U);
  }
  writer.client().Close(*pinned);
}

TEST(Keeper, AFullDiskRefusesNewObjectsAndWhatWasAcceptedStaysReadable) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  if (!folder.MountTiny()) config.disk = shm::DiskShare(1 << 20);
  {
    TestNode node(config);
    TestProcess process(node, 1);
    TestProcess other(node, 2);
    std::vector<Place> places;
    Status failure;
    for (std::uint64_t n = 0; failure.ok() && n < 100; ++n) {
      Result<Place> place = PutTest(process, n, 400'000);
      if (place.ok()) {
        places.push_back(*place);
      } else {
        failure = place.status();
      }
    }
    ASSERT_FALSE(failure.ok());
    EXPECT_EQ(failure.code(), Code::kIo) << failure.message();
    EXPECT_NE(failure.message().find("spilling failed: cannot spill"), std::string::npos) << failure.message();
    EXPECT_GT(node.stats().spilled_objects, 0U);
    for (std::uint64_t n = 0; n < places.size(); ++n) {
      const Status same = CheckTest(n % 2 == 0 ? process : other, n, &places[n]);
      EXPECT_TRUE(same.ok()) << n << ": " << same.message();
    }
  }
}

TEST(Keeper, AMissingSpillFolderIsAnErrorWithARemedy) {
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = "/no/such/folder";
  TestNode node(config);
  TestProcess process(node, 1);
  ASSERT_TRUE(PutTest(process, 1, 6 << 20).ok());
  Result<Place> place = PutTest(process, 2, 6 << 20);
  ASSERT_FALSE(place.ok());
  EXPECT_EQ(place.status().code(), Code::kIo);
  EXPECT_NE(place.status().message().find("set Config::spill_folder to a writable folder"), std::string::npos);
}

TEST(Keeper, WhatADeadProcessWasWritingIsReclaimedAndWhatItSealedForOthersStays) {
  TestNode node(Small(16 << 20));
  TestProcess survivor(node, 2);
  Place kept;
  {
    TestProcess writer(node, 1);
    ASSERT_TRUE(PutTest(writer, 1, 50'000).ok());                      // its own: goes
    kept = *PutTest(writer, 2, 50'000, survivor.id());                 // another's: stays
    ASSERT_TRUE(PutTest(writer, 3, 50'000).ok());                      // its own, but escaped: stays
    ASSERT_TRUE(writer.client().Allocate(TestId(4), 2, 50'000).ok());  // never sealed: goes
    ASSERT_TRUE(writer.client().Allocate(TestId(5), 2, 5'000'000).ok());
    EXPECT_EQ(node.stats().objects, 5U);
    writer.Kill([](const Id& object) { return object == TestId(3); });
  }
  EXPECT_EQ(node.stats().objects, 2U);
  EXPECT_TRUE(CheckTest(survivor, 2, &kept).ok());
  node.With([](Keeper& keeper, std::int64_t now) { keeper.FreeObjects({TestId(2), TestId(3)}, {}, now); });
  EXPECT_EQ(node.stats().objects, 0U);
  // Its memory serves the next one.
  ASSERT_TRUE(PutTest(survivor, 6, 5'000'000).ok());
  ASSERT_TRUE(PutTest(survivor, 7, 5'000'000).ok());
}

TEST(Keeper, ADeadReaderHoldsNothing) {
  TestNode node(Small(16 << 20));
  TestProcess writer(node, 1);
  Result<Place> place = PutTest(writer, 1, 50'000);
  {
    TestProcess reader(node, 2);
    ASSERT_TRUE(reader.client().Open(TestId(1), *place).ok());
    writer.client().Free(TestId(1), *place);
    writer.client().Flush();
    EXPECT_EQ(node.stats().objects, 1U);
    reader.Kill();
  }
  EXPECT_EQ(node.stats().objects, 0U);
}

TEST(Keeper, ManyProcessesShareAStoreWithFewSegments) {
  KeeperConfig config = Small(4 << 20);
  config.wait_us = 5'000'000;
  TestNode node(config);
  std::vector<std::unique_ptr<TestProcess>> processes;
  std::vector<Place> places;
  for (ProcessId id = 1; id <= 32; ++id) processes.push_back(std::make_unique<TestProcess>(node, id));
  for (std::uint64_t n = 0; n < 96; ++n) {
    Result<Place> place = PutTest(*processes[n % 32], n, 10'000);
    ASSERT_TRUE(place.ok()) << n << ": " << place.status().message();
    places.push_back(*place);
  }
  for (std::uint64_t n = 0; n < 96; ++n) EXPECT_TRUE(CheckTest(*processes[(n + 5) % 32], n, &places[n]).ok());
}

TEST(Keeper, IdleMemoryIsGivenBack) {
  KeeperConfig config = Small(64 << 20);
  TestNode node(config);
  TestProcess process(node, 1);
  Result<Place> small = PutTest(process, 1, 5000);
  Result<Place> large = PutTest(process, 2, 30 << 20);
  process.client().Free(TestId(2), *large, false);
  node.With([](Keeper& keeper, std::int64_t now) {
    EXPECT_GT(keeper.stats().segments, 30U << 20);
    for (std::int64_t later = now; later < now + 20'000'000; later += 1'000'000) keeper.Tick(later);
    EXPECT_LT(keeper.stats().segments, 10U << 20);
  });
  EXPECT_TRUE(CheckTest(process, 1, &*small).ok());
  ASSERT_TRUE(PutTest(process, 3, 30 << 20).ok());  // its old mapping is not used for it
}

TEST(Keeper, HugePagesServeWhereTheMachineAllowsIt) {
  KeeperConfig config;
  config.capacity = 64 << 20;
  TestNode node(config);
  TestProcess process(node, 1);
  TestProcess reader(node, 2);
  Result<Place> place = PutTest(process, 1, 20 << 20);
  ASSERT_TRUE(place.ok());
  EXPECT_TRUE(CheckTest(reader, 1, &*place).ok());
  RecordProperty("huge", node.stats().huge ? 1 : 0);
}

// A process may write anything into a segment it was lent; the daemon must live on, and so must the others.
TEST(Keeper, ATableFullOfGarbageHurtsOnlyItsWriter) {
  Folder folder;
  for (unsigned seed = 0; seed < 60; ++seed) {
    KeeperConfig config = Small(2 << 20);
    config.spill_folder = folder.path();
    config.wait_us = 0;
    TestNode node(config);
    TestProcess good(node, 2);
    Result<Place> place = PutTest(good, 1, 50'000);
    {
      TestProcess bad(node, 1);
      Result<LentSegment> lent = bad.Request(1000);
      ASSERT_TRUE(lent.ok());
      Result<shm::Mapping> map = shm::Mapping::Of(lent->fd.get(), 0, lent->bytes, true);
      std::mt19937 random(seed);
      auto* words = reinterpret_cast<std::uint32_t*>(map->data());
      for (std::size_t i = seed % 2 == 0 ? 0 : 64; i < 2000; ++i) {
        words[i] = random() % 3 == 0 ? random() : random() % 5;  // small numbers are states, rows, owners
      }
      std::vector<Id> ids{TestId(1), Id{}};
      std::vector<Place> places;
      for (std::uint32_t row = 0; row < 20; ++row) {
        places.push_back(Place{lent->segment, row, words[64 + row * 16 + 1], 0, 1});
        ids.push_back(Id{});
      }
      bad.Free(ids, places);
      (void)bad.Restore(Id{1, 2});
      node.stats();
      (void)PutTest(good, 2, 1'500'000);  // makes it spill what it finds
      bad.Kill();
    }
    node.Tick();
    for (std::uint64_t n = 10; n < 40; ++n) (void)PutTest(good, n, 60'000);
  }
}

TEST(Keeper, CopiesOfOtherNodesObjectsGoBeforeAnythingIsSpilled) {
  Folder folder;
  KeeperConfig config = Small(8 << 20);
  config.spill_folder = folder.path();
  TestNode node(config);
  std::vector<Id> evicted;
  node.With([&](Keeper& keeper, std::int64_t) {
    keeper.SetOnEvicted([&](const std::vector<Id>& ids) { evicted.insert(evicted.end(), ids.begin(), ids.end()); });
  });
  TestProcess copies(node, kCopies);
  TestProcess writer(node, 2);
  Place pinned;
  std::uint64_t n = 0;
  for (; n < 5; ++n) {
    const Result<Place> place = PutTest(copies, n, 1'000'000);
    ASSERT_TRUE(place.ok()) << place.status().message();
    if (n == 0) pinned = place.value();
  }
  EXPECT_EQ(node.stats().copies, 5'000'000U);
  Result<View> view = writer.client().Open(TestId(0), pinned);
  ASSERT_TRUE(view.ok());
  std::vector<Place> own;
  for (; n < 11; ++n) {
    const Result<Place> place = PutTest(writer, n, 1'000'000);
    ASSERT_TRUE(place.ok()) << place.status().message();
    own.push_back(place.value());
  }
  EXPECT_EQ(node.stats().spilled, 0U);
  EXPECT_GE(evicted.size(), 3U);
  EXPECT_TRUE(Holds(view->data, view->size, 0));  // what is read stays
  for (std::uint64_t i = 0; i < own.size(); ++i) EXPECT_TRUE(CheckTest(writer, 5 + i, &own[i]).ok());
  writer.client().Close(*view);
  node.With([](Keeper& keeper, std::int64_t) { keeper.SetOnEvicted(nullptr); });
}

TEST(Keeper, APlaceNamesItsNode) {
  KeeperConfig config = Small(8 << 20);
  config.number = 7;
  TestNode node(config);
  TestProcess writer(node, OnNode(7, 1));
  const Result<Place> place = PutTest(writer, 1, 10'000);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place.value().node, 7U);
  const Result<Place> found = writer.Restore(TestId(1));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), place.value());
}

}  // namespace
}  // namespace manta::store
