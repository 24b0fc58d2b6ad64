#include "node/transfers.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "node/test_linked.h"

namespace manta::node {
namespace {

using store::TestId;

constexpr std::uint64_t kMiB = 1ULL << 20;

class TransfersTest : public LinkedNodesTest {};

TEST_F(TransfersTest, ObjectsOfEverySizeArriveAsTheyWere) {
  Start(2, 600 * kMiB);
  auto maker = Driver(1);
  auto reader = Driver(2);
  std::uint64_t n = 0;
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{4097},
                                   100'000UL, 4 * kMiB, 4 * kMiB + 1, 33 * kMiB + 5, 200 * kMiB}) {
    const Result<Place> place = maker->Put(++n, size);
    ASSERT_TRUE(place.ok()) << place.status().message();
    EXPECT_EQ(place.value().node, 1U);
    const Status status = reader->Check(n, place.value(), maker->self());
    EXPECT_TRUE(status.ok()) << size << ": " << status.message();
    maker->store().Free(TestId(n), place.value());
    maker->store().Flush();
  }
  // Freed by its owner, gone everywhere.
  EXPECT_TRUE(PumpUntil([&] { return StatusOf(1).store_objects == 0 && StatusOf(2).store_objects == 0; }));
  EXPECT_EQ(transfers(1).copies().size(), 0U);
}

TEST_F(TransfersTest, UnderTlsToo) {
  Start(2, 64 * kMiB, [](TransferOptions& options) { options.stream_bytes = 4 * kMiB; }, true);
  auto maker = Driver(1);
  auto reader = Driver(2);
  std::uint64_t n = 0;
  for (const std::uint64_t size : {std::uint64_t{5000}, 20 * kMiB}) {
    const Result<Place> place = maker->Put(++n, size);
    ASSERT_TRUE(place.ok()) << place.status().message();
    const Status status = reader->Check(n, place.value(), maker->self());
    EXPECT_TRUE(status.ok()) << size << ": " << status.message();
  }
}

TEST_F(TransfersTest, SimultaneousRequestsShareOneTransfer) {
  Start(2);
  auto maker = Driver(1);
  auto first = Driver(2);
  auto second = Driver(2);
  const Result<Place> place = maker->Put(1, 20 * kMiB);
  ASSERT_TRUE(place.ok());
  const wire::Fetch fetch{TestId(1), place.value(), maker->self()};
  first->client().Send(fetch, 1);
  second->client().Send(fetch, 2);
  first->client().Send(fetch, 3);
  ASSERT_TRUE(first->client().AwaitAnswer(1).has_value());
  ASSERT_TRUE(second->client().AwaitAnswer(2).has_value());
  ASSERT_TRUE(first->client().AwaitAnswer(3).has_value());
  EXPECT_TRUE(first->Check(1, place.value(), maker->self()).ok());
  EXPECT_EQ(transfers(2).counters().pulls.load(), 1U);
  EXPECT_EQ(transfers(2).counters().bytes_in.load(), 20 * kMiB);
}

TEST_F(TransfersTest, TheSpeedOfLargeObjectsIsMeasuredOnce) {
  Start(2);
  auto maker = Driver(1);
  auto reader = Driver(2);
  const Result<Place> small = maker->Put(1, 10'000);
  const Result<Place> large = maker->Put(2, 20 * kMiB);
  ASSERT_TRUE(small.ok() && large.ok());
  ASSERT_TRUE(reader->Check(1, small.value(), maker->self()).ok());
  ASSERT_TRUE(reader->Check(2, large.value(), maker->self()).ok());
  const Transfers::Speed speed = transfers(2).TakeSpeed();
  EXPECT_EQ(speed.bytes, 20 * kMiB);
  EXPECT_GT(speed.us, 0);
  EXPECT_EQ(transfers(2).TakeSpeed().bytes, 0U);
}

TEST_F(TransfersTest, WhatIsFetchedAheadIsThereWhenItIsNeeded) {
  Start(2);
  auto maker = Driver(1);
  auto reader = Driver(2);
  wire::FetchAhead ahead;
  for (std::uint64_t n = 1; n <= 40; ++n) {
    const Result<Place> place = maker->Put(n, 10'000 * n);
    ASSERT_TRUE(place.ok());
    ahead.objects.push_back(TestId(n));
    ahead.places.push_back(place.value());
    ahead.owners.push_back(maker->self());
  }
  reader->client().Send(ahead);
  ASSERT_TRUE(PumpUntil([&] { return transfers(2).HasCopy(TestId(40)) && transfers(2).fetching() == 0; }));
  for (std::uint64_t n = 1; n <= 40; ++n) {
    EXPECT_TRUE(reader->Check(n, ahead.places[n - 1], maker->self()).ok()) << n;
  }
  EXPECT_EQ(transfers(2).counters().pulls.load(), 40U);
}

TEST_F(TransfersTest, CopiesMakeRoomAndCanBeFetchedAgain) {
  Start(2);
  auto maker = Driver(1);
  auto reader = Driver(2);
  std::vector<Place> places;
  for (std::uint64_t n = 1; n <= 3; ++n) {
    const Result<Place> place = maker->Put(n, 15 * kMiB);
    ASSERT_TRUE(place.ok()) << place.status().message();
    places.push_back(place.value());
    ASSERT_TRUE(reader->Check(n, places.back(), maker->self()).ok());
  }
  // A value of the node's own that needs most of the store: the copies go, nothing is refused.
  const Result<Place> own = reader->Put(100, 50 * kMiB);
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_FALSE(transfers(2).HasCopy(TestId(1)));
  reader->store().Free(TestId(100), own.value());
  reader->store().Flush();
  for (std::uint64_t n = 1; n <= 3; ++n) {
    const Status status = reader->Check(n, places[n - 1], maker->self());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_GE(transfers(2).counters().pulls.load(), 4U);
}

TEST_F(TransfersTest, SmallCopiesMakeRoomForEachOther) {
  Start(2, 8 * kMiB);
  auto maker = Driver(1);
  auto reader = Driver(2);
  for (std::uint64_t n = 1; n <= 60; ++n) {
    const Result<Place> place = maker->Put(n, 200'000);
    ASSERT_TRUE(place.ok()) << place.status().message();
    const Status status = reader->Check(n, place.value(), maker->self());
    ASSERT_TRUE(status.ok()) << n << ": " << status.message();
    if (n % 2 == 0) continue;
    maker->store().Free(TestId(n), place.value());
    maker->store().Flush();
  }
}

TEST_F(TransfersTest, WhatCanNeverFitIsRefusedWithTheNumbers) {
  other_stores_[2] = 32 * kMiB;
  Start(2, 200 * kMiB);
  auto maker = Driver(1);
  auto reader = Driver(2);
  const Result<Place> place = maker->Put(1, 100 * kMiB);
  ASSERT_TRUE(place.ok());
  const Status status = reader->Check(1, place.value(), maker->self());
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_NE(status.message().find("100.0 MiB"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("32.0 MiB"), std::string::npos) << status.message();
  EXPECT_EQ(transfers(2).fetching(), 0U);
}

TEST_F(TransfersTest, WhatIsNowhereIsLostAndSaysWhereItWas) {
  Start(2);
  auto maker = Driver(1);
  auto reader = Driver(2);
  const Result<Place> place = maker->Put(1, 100'000);
  ASSERT_TRUE(place.ok());
  maker->store().Free(TestId(1), place.value());
  maker->store().Flush();
  Settle();
  const Status status = reader->Check(1, place.value(), maker->self());
  EXPECT_EQ(status.code(), Code::kLost);
  EXPECT_NE(status.message().find("node 1"), std::string::npos) << status.message();
}

TEST_F(TransfersTest, AnObjectIsLostWithItsHome) {
  Start(2, 400 * kMiB);
  auto maker = Driver(1);
  auto reader = Driver(2);
  const Result<Place> place = maker->Put(1, 150 * kMiB);
  ASSERT_TRUE(place.ok());
  reader->client().Send(wire::Fetch{TestId(1), place.value(), maker->self()}, 1);
  ASSERT_TRUE(PumpUntil([&] { return transfers(2).counters().bytes_in.load() > 0; }));
  maker.reset();
  Kill(1);
  const std::optional<wire::Frame> answer = reader->client().AwaitAnswer(1);
  ASSERT_TRUE(answer.has_value());
  if (answer->kind == wire::Kind::kFailed) {  // else it was faster
    EXPECT_EQ(answer->As<wire::Failed>().value().failure.code, Code::kLost);
  }
  EXPECT_EQ(transfers(2).fetching(), 0U);
  EXPECT_TRUE(PumpUntil([&] { return StatusOf(2).store_objects == 0; }));
}

// The owner is on node 1, the value was made on node 2 for it, node 3 wants it.
TEST_F(TransfersTest, ASourceThatDiesIsReplacedByAnotherCopy) {
  Start(3, 400 * kMiB);
  auto owner = Driver(1);
  auto worker = Driver(2);
  auto reader = Driver(3);
  const Result<Place> place = worker->Put(1, 150 * kMiB);
  ASSERT_TRUE(place.ok());
  ASSERT_TRUE(owner->Check(1, place.value(), owner->self()).ok());  // a copy on node 1
  // Node 2 serves first: node 1's copy has its hands full as far as the plan goes, being the later holder.
  reader->client().Send(wire::Fetch{TestId(1), place.value(), owner->self()}, 1);
  ASSERT_TRUE(PumpUntil([&] { return transfers(3).counters().bytes_in.load() > 0; }));
  worker.reset();
  Kill(2);
  const std::optional<wire::Frame> answer = reader->client().AwaitAnswer(1);
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->kind, wire::Kind::kFetched) << answer->As<wire::Failed>().value().failure.message;
  EXPECT_TRUE(reader->Check(1, place.value(), owner->self()).ok());
}

TEST_F(TransfersTest, WithItsOnlySourceDeadAnObjectIsLost) {
  Start(3, 400 * kMiB);
  auto owner = Driver(1);
  auto worker = Driver(2);
  auto reader = Driver(3);
  const Result<Place> place = worker->Put(1, 150 * kMiB);
  ASSERT_TRUE(place.ok());
  reader->client().Send(wire::Fetch{TestId(1), place.value(), owner->self()}, 1);
  ASSERT_TRUE(PumpUntil([&] { return transfers(3).counters().bytes_in.load() > 0; }));
  worker.reset();
  Kill(2);
  const std::optional<wire::Frame> answer = reader->client().AwaitAnswer(1);
  ASSERT_TRUE(answer.has_value());
  if (answer->kind == wire::Kind::kFailed) {
    const Failure failure = answer->As<wire::Failed>().value().failure;
    EXPECT_EQ(failure.code, Code::kLost);
    EXPECT_NE(failure.message.find("node 2"), std::string::npos) << failure.message;
  }
}

TEST_F(TransfersTest, AWrongSumIsNoticed) {
  PartSum right;
  PartSum wrong;
  std::vector<std::byte> bytes(1000, std::byte{7});
  right.Add(std::span(bytes).first(640));
  right.Add(std::span(bytes).subspan(640));
  for (const std::size_t at : {0UL, 63UL, 64UL, 639UL, 640UL, 999UL}) {
    std::vector<std::byte> changed = bytes;
    changed[at] ^= std::byte{1};
    PartSum sum;
    sum.Add(changed);
    EXPECT_NE(sum.value(), right.value()) << at;
  }
  PartSum whole;
  whole.Add(bytes, true);
  EXPECT_EQ(whole.value(), right.value());
  std::vector<std::byte> moved = bytes;
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = static_cast<std::byte>(i / 64);
  PartSum before;
  before.Add(moved);
  std::swap_ranges(moved.begin(), moved.begin() + 64, moved.begin() + 640);
  PartSum after;
  after.Add(moved);
  EXPECT_NE(after.value(), before.value());
  std::swap(bytes[0], bytes[8]);
  bytes.pop_back();
  wrong.Add(bytes);
  EXPECT_NE(wrong.value(), right.value());
}

TEST_F(TransfersTest, ABroadcastGoesAsATree) {
  Start(9, 160 * kMiB);
  auto maker = Driver(1);
  const std::uint64_t size = 60 * kMiB;
  const Result<Place> place = maker->Put(1, size);
  ASSERT_TRUE(place.ok());
  std::vector<std::unique_ptr<StoreDriver>> readers;
  for (NodeNumber node = 2; node <= 9; ++node) readers.push_back(Driver(node));
  for (auto& reader : readers) reader->client().Send(wire::Fetch{TestId(1), place.value(), maker->self()}, 1);
  for (auto& reader : readers) {
    const std::optional<wire::Frame> answer = reader->client().AwaitAnswer(1);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->kind, wire::Kind::kFetched);
  }
  for (auto& reader : readers) EXPECT_TRUE(reader->Check(1, place.value(), maker->self()).ok());
  EXPECT_LE(transfers(1).counters().bytes_out.load(), 2 * size);
  for (NodeNumber node = 2; node <= 9; ++node) {
    EXPECT_EQ(transfers(node).counters().bytes_in.load(), size);
    EXPECT_LE(transfers(node).counters().bytes_out.load(), 2 * size);
  }
  maker->store().Free(TestId(1), place.value());
  maker->store().Flush();
  for (NodeNumber node = 1; node <= 9; ++node) {
    EXPECT_TRUE(PumpUntil([&] { return StatusOf(node).store_objects == 0; })) << node;
  }
}

TEST_F(TransfersTest, ObjectsAreFreedWhereTheyAreAlsoWhenOnlyTheNodeIsKnown) {
  Start(2);
  auto owner = Driver(1);
  auto worker = Driver(2);
  const Result<Place> first = worker->Put(1, 10'000);
  const Result<Place> second = worker->Put(2, 10'000);
  const Result<Place> third = worker->Put(3, 10'000);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  ASSERT_TRUE(owner->Check(2, second.value(), owner->self()).ok());
  Place somewhere;
  somewhere.node = 2;
  owner->client().Send(
      wire::FreeObjects{{TestId(1), TestId(2), TestId(3)}, {first.value(), second.value(), somewhere}});
  EXPECT_TRUE(PumpUntil([&] { return StatusOf(1).store_objects == 0 && StatusOf(2).store_objects == 0; }));
}

}  // namespace
}  // namespace manta::node
