#include "node/far_objects.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "node/test_linked.h"

namespace manta::node {
namespace {

using store::TestId;

class FarObjectsTest : public LinkedNodesTest {
 protected:
  // Stored and announced by its owner, who holds it.
  Place Publish(StoreDriver& owner, std::uint64_t n, std::uint64_t size = 10'000, std::vector<Id> contained = {},
                std::vector<ProcessId> owners = {}) {
    const Result<Place> place = owner.Put(n, size);
    EXPECT_TRUE(place.ok());
    wire::Publish message;
    message.object = TestId(n);
    message.outcome.ready = true;
    message.outcome.place = place.value();
    message.outcome.contained = std::move(contained);
    message.outcome.contained_owners = std::move(owners);
    owner.client().Send(message);
    return place.value();
  }
  static void Hold(StoreDriver& by, std::uint64_t n, ProcessId owner, ProcessId holder = kNoProcess) {
    by.client().Send(wire::Hold{{TestId(n)}, holder, {owner}});
  }
  static void Drop(StoreDriver& by, std::uint64_t n, std::uint32_t count = 1) {
    by.client().Send(wire::Drop{{TestId(n)}, {count}});
  }
  std::uint64_t Stored(NodeNumber node) { return StatusOf(node).store_objects; }
  Result<wire::Outcome> Wait(StoreDriver& by, std::uint64_t n, ProcessId owner) {
    by.client().Send(wire::WaitObjects{{TestId(n)}, {owner}});
    const std::optional<wire::ObjectReady> ready = by.client().Await<wire::ObjectReady>();
    if (!ready.has_value()) return Status(Code::kTimedOut, "nobody answered");
    EXPECT_EQ(ready->object, TestId(n));
    if (!ready->outcome.failure.ok()) return Status(ready->outcome.failure.code, ready->outcome.failure.message);
    return ready->outcome;
  }
};

TEST_F(FarObjectsTest, WhoWaitsOnAnotherNodeIsToldWhatBecameOfTheObject) {
  Start(2);
  auto owner = Driver(1);
  auto reader = Driver(2);
  reader->client().Send(wire::WaitObjects{{TestId(1), TestId(2)}, {owner->self(), owner->self()}});
  Settle();
  owner->client().Send(wire::Expect{{TestId(1)}, {}});
  wire::Publish message;
  message.object = TestId(1);
  message.expected = true;
  message.outcome.bytes = "hello";
  owner->client().Send(message);
  message.object = TestId(2);
  message.expected = false;
  message.outcome = {};
  message.outcome.failure = Failure{Code::kTaskFailed, "it threw", {}, {}};
  owner->client().Send(message);
  std::map<Id, wire::Outcome> got;
  for (int i = 0; i < 2; ++i) {
    const std::optional<wire::ObjectReady> ready = reader->client().Await<wire::ObjectReady>();
    ASSERT_TRUE(ready.has_value());
    got[ready->object] = ready->outcome;
  }
  EXPECT_EQ(got[TestId(1)].bytes, "hello");
  EXPECT_EQ(got[TestId(2)].failure.message, "it threw");
  // And once more, when it has been ready for long.
  EXPECT_EQ(Wait(*reader, 1, owner->self()).value().bytes, "hello");
}

TEST_F(FarObjectsTest, WhatAnotherNodeHoldsOutlivesItsOwnersDrop) {
  Start(2);
  auto owner = Driver(1);
  auto reader = Driver(2);
  const Place place = Publish(*owner, 1);
  Hold(*reader, 1, owner->self());
  ASSERT_TRUE(reader->Call<wire::Done>(wire::HoldFar{}).ok());
  Drop(*owner, 1);
  Settle();
  EXPECT_EQ(Stored(1), 1U);
  EXPECT_TRUE(reader->Check(1, place, owner->self()).ok());
  EXPECT_EQ(Stored(2), 1U);
  Drop(*reader, 1);
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0 && Stored(2) == 0; }));
}

TEST_F(FarObjectsTest, ANodeIsOneHolderForAllItsProcesses) {
  Start(2);
  auto owner = Driver(1);
  auto first = Driver(2);
  auto second = Driver(2);
  Publish(*owner, 1);
  Hold(*first, 1, owner->self());
  Hold(*second, 1, owner->self());
  ASSERT_TRUE(second->Call<wire::Done>(wire::HoldFar{}).ok());
  Drop(*owner, 1);
  Drop(*first, 1);
  Settle();
  EXPECT_EQ(Stored(1), 1U);
  second.reset();  // dies
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0; }));
}

TEST_F(FarObjectsTest, ADeadNodeHoldsNothing) {
  Start(3);
  auto owner = Driver(1);
  auto reader = Driver(2);
  Publish(*owner, 1);
  Hold(*reader, 1, owner->self());
  ASSERT_TRUE(reader->Call<wire::Done>(wire::HoldFar{}).ok());
  Drop(*owner, 1);
  Settle();
  EXPECT_EQ(Stored(1), 1U);
  reader.reset();
  Kill(2);
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0; }));
}

TEST_F(FarObjectsTest, WhatWasAtHomeOnADeadNodeIsLostAndTheNodeIsNamed) {
  Start(2);
  auto owner = Driver(1);
  auto reader = Driver(2);
  const ProcessId gone = owner->self();
  reader->client().Send(wire::WaitObjects{{TestId(1)}, {gone}});
  Settle();
  owner.reset();
  Kill(1);
  const std::optional<wire::ObjectReady> ready = reader->client().Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.failure.code, Code::kLost);
  EXPECT_NE(ready->outcome.failure.message.find("node 1"), std::string::npos) << ready->outcome.failure.message;
  // Who asks later is told as well, and nobody is kept waiting for an answer.
  EXPECT_EQ(Wait(*reader, 2, gone).status().code(), Code::kLost);
  EXPECT_TRUE(reader->Call<wire::Done>(wire::HoldFar{}).ok());
}

TEST_F(FarObjectsTest, AnOwnerThatDiesLosesWhatOthersWaitFor) {
  Start(2);
  auto owner = Driver(1);
  auto reader = Driver(2);
  owner->client().Send(wire::Expect{{TestId(1)}, {}});
  reader->client().Send(wire::WaitObjects{{TestId(1)}, {owner->self()}});
  Settle();
  owner.reset();
  const std::optional<wire::ObjectReady> ready = reader->client().Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.failure.code, Code::kLost);
}

TEST_F(FarObjectsTest, AValueHoldsWhatItContainsOnAnotherNode) {
  Start(2);
  auto inner = Driver(1);
  auto outer = Driver(2);
  Publish(*inner, 1);
  Publish(*outer, 2, 5000, {TestId(1)}, {inner->self()});
  ASSERT_TRUE(outer->Call<wire::Done>(wire::HoldFar{}).ok());
  Drop(*inner, 1);
  Settle();
  EXPECT_EQ(Stored(1), 1U);
  Drop(*outer, 2);
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0 && Stored(2) == 0; }));
}

TEST_F(FarObjectsTest, AHoldIsHandedToAProcessOfAThirdNode) {
  Start(3);
  auto owner = Driver(1);
  auto giver = Driver(2);
  auto taker = Driver(3);
  const Place place = Publish(*owner, 1);
  Hold(*giver, 1, owner->self());
  Hold(*giver, 1, owner->self(), taker->self());
  ASSERT_TRUE(giver->Call<wire::Done>(wire::HoldFar{}).ok());
  Drop(*owner, 1);
  Drop(*giver, 1);
  Settle();
  EXPECT_EQ(Stored(1), 1U);
  EXPECT_TRUE(taker->Check(1, place, owner->self()).ok());
  Drop(*taker, 1);
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0; }));
}

TEST_F(FarObjectsTest, AHoldThatComesAfterItsDropEndsIt) {
  Start(3);
  auto owner = Driver(1);
  auto giver = Driver(2);
  auto taker = Driver(3);
  Publish(*owner, 1);
  Hold(*giver, 1, owner->self());
  ASSERT_TRUE(giver->Call<wire::Done>(wire::HoldFar{}).ok());
  Drop(*taker, 1);  // of what it will be given
  Settle();
  Hold(*giver, 1, owner->self(), taker->self());
  Drop(*giver, 1);
  Drop(*owner, 1);
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0; }));
}

TEST_F(FarObjectsTest, AValueMadeElsewhereOutlivesItsOwnerWhileOthersHoldIt) {
  Start(3);
  auto owner = Driver(1);
  auto worker = Driver(2);
  auto reader = Driver(3);
  const Result<Place> place = worker->Put(1, 10'000);
  ASSERT_TRUE(place.ok());
  wire::Publish message;
  message.object = TestId(1);
  message.outcome.place = place.value();
  owner->client().Send(message);
  Hold(*reader, 1, owner->self());
  ASSERT_TRUE(reader->Call<wire::Done>(wire::HoldFar{}).ok());
  const ProcessId gone = owner->self();
  owner.reset();
  EXPECT_TRUE(PumpUntil([&] { return transfers(2).Kept(TestId(1)); }));
  EXPECT_TRUE(reader->Check(1, place.value(), gone).ok());
  Drop(*reader, 1);
  EXPECT_TRUE(PumpUntil([&] { return Stored(2) == 0 && Stored(3) == 0; }));
  EXPECT_FALSE(transfers(2).Kept(TestId(1)));
}

// Holds are passed on and dropped at random, with every daemon running when it likes: nothing that anybody holds is
// ever freed, and in the end nothing is left.
TEST_F(FarObjectsTest, InEveryOrderNothingHeldIsFreedAndNothingFreedStays) {
  Start(3);
  constexpr std::uint64_t kObjects = 6;
  std::vector<std::unique_ptr<StoreDriver>> drivers;
  for (NodeNumber node = 1; node <= 3; ++node) {
    drivers.push_back(Driver(node));
    drivers.push_back(Driver(node));
  }
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(Cat("seed ", seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
    std::map<std::uint64_t, ProcessId> owners;
    std::map<std::uint64_t, Place> places;
    std::map<std::uint64_t, std::map<std::size_t, std::uint32_t>> held;  // by object and driver
    for (std::uint64_t i = 0; i < kObjects; ++i) {
      const std::uint64_t n = seed * 100 + i;
      const std::size_t owner = pick(drivers.size());
      owners[n] = drivers[owner]->self();
      places[n] = Publish(*drivers[owner], n);
      held[n][owner] = 1;
    }
    for (int step = 0; step < 150; ++step) {
      const std::uint64_t n = seed * 100 + pick(kObjects);
      std::map<std::size_t, std::uint32_t>& holders = held[n];
      if (!holders.empty()) {
        auto it = holders.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(pick(holders.size())));
        const std::size_t from = it->first;
        if (pick(5) < 2) {
          const auto count = static_cast<std::uint32_t>(1 + pick(it->second));
          Drop(*drivers[from], n, count);
          it->second -= count;
          if (it->second == 0) holders.erase(it);
        } else {
          const std::size_t to = pick(drivers.size());
          Hold(*drivers[from], n, owners[n], drivers[to]->self());
          ++holders[to];
        }
      }
      for (std::size_t rounds = pick(4); rounds > 0; --rounds) node(1 + pick(3)).daemon->loop().RunOnce(0);
    }
    for (auto& [n, holders] : held) {
      for (auto& [who, count] : holders) {
        const Result<wire::Outcome> outcome = Wait(*drivers[who], n, owners[n]);
        ASSERT_TRUE(outcome.ok()) << n << ": " << outcome.status().message();
        const Status status = drivers[who]->Check(n, places[n], owners[n]);
        ASSERT_TRUE(status.ok()) << n << ": " << status.message();
      }
      for (auto& [who, count] : holders) Drop(*drivers[who], n, count);
    }
    for (NodeNumber each = 1; each <= 3; ++each) {
      EXPECT_TRUE(PumpUntil([&] { return Stored(each) == 0; })) << "node " << each;
    }
  }
}

// Who borrows without a hold takes one and waits for HoldFar; only then does the lender let go.
TEST_F(FarObjectsTest, ABorrowersHoldIsKnownWhenItMaySaySo) {
  Start(3);
  auto owner = Driver(1);
  auto lender = Driver(2);
  auto borrower = Driver(3);
  for (std::uint64_t n = 1; n <= 20; ++n) {
    const Place place = Publish(*owner, n);
    Hold(*lender, n, owner->self());
    ASSERT_TRUE(lender->Call<wire::Done>(wire::HoldFar{}).ok());
    Drop(*owner, n);
    Hold(*borrower, n, owner->self());
    ASSERT_TRUE(borrower->Call<wire::Done>(wire::HoldFar{}).ok());
    Drop(*lender, n);
    if (n % 3 == 0) Settle();
    EXPECT_TRUE(borrower->Check(n, place, owner->self()).ok());
    Drop(*borrower, n);
  }
  EXPECT_TRUE(PumpUntil([&] { return Stored(1) == 0; }));
}

// ---- what is said in which order ----

class Recorder final : public FarNodes {
 public:
  [[nodiscard]] NodeNumber self() const override { return 1; }
  [[nodiscard]] bool Knows(NodeNumber node) const override { return node <= 4; }
  void SendFrame(NodeNumber node, std::string bytes) override {
    wire::FrameReader reader;
    reader.Add(std::as_bytes(std::span(bytes)), {});
    wire::Frame frame;
    EXPECT_TRUE(reader.Next(&frame).value());
    said.push_back(Cat(node, ":", Word(frame.kind)));
  }
  [[nodiscard]] std::string AddressFor(NodeNumber /*node*/) const override { return {}; }

  std::vector<std::string> Take() { return std::exchange(said, {}); }
  std::vector<std::string> said;

 private:
  static std::string Word(wire::Kind kind) {
    if (kind == wire::FarHold::kKind) return "hold";
    if (kind == wire::FarDrop::kKind) return "drop";
    return kind == wire::FarSync::kKind ? "sync" : "?";
  }
};

using Said = std::vector<std::string>;

TEST(FarObjects, OnlyTheFirstHoldAndTheLastDropGoToTheHome) {
  Recorder nodes;
  FarObjects far(nodes);
  far.Held(TestId(1), OnNode(2, 5));
  far.Held(TestId(1), OnNode(2, 5));
  far.Flush();
  EXPECT_EQ(nodes.Take(), Said{"2:hold"});
  EXPECT_TRUE(far.Unheld(TestId(1)));
  EXPECT_FALSE(far.Unheld(TestId(1)));
  far.Flush();
  // Not before the hold is known: what was let go of may have been the way to it.
  EXPECT_EQ(nodes.Take(), Said{"2:sync"});
  far.OnSynced(2, 1);
  EXPECT_EQ(nodes.Take(), Said{"2:drop"});
  EXPECT_EQ(far.size(), 0U);
}

TEST(FarObjects, ADropWaitsForHoldsAtOtherHomes) {
  Recorder nodes;
  FarObjects far(nodes);
  far.Held(TestId(1), OnNode(2, 5));
  far.Flush();
  far.Barrier([] {});
  far.OnSynced(2, 1);
  nodes.Take();
  far.Held(TestId(2), OnNode(3, 5));  // found in the first, which goes
  EXPECT_TRUE(far.Unheld(TestId(1)));
  far.Flush();
  EXPECT_EQ(nodes.Take(), (Said{"3:hold", "3:sync"}));
  far.OnSynced(3, 1);
  EXPECT_EQ(nodes.Take(), Said{"2:drop"});
}

TEST(FarObjects, ADeadHomeKeepsNobodyWaiting) {
  Recorder nodes;
  FarObjects far(nodes);
  far.Held(TestId(1), OnNode(2, 5));
  far.Held(TestId(2), OnNode(3, 5));
  int reached = 0;
  far.Barrier([&] { ++reached; });
  far.OnSynced(3, 1);
  EXPECT_EQ(reached, 0);
  far.NodeDown(2);
  EXPECT_EQ(reached, 1);
  EXPECT_FALSE(far.Unheld(TestId(1)));
  // A number that was never asked about counts for nothing.
  far.Held(TestId(3), OnNode(3, 5));
  far.Flush();
  far.OnSynced(3, 99);
  far.Barrier([&] { ++reached; });
  EXPECT_EQ(reached, 1);
  far.OnSynced(3, 2);
  EXPECT_EQ(reached, 2);
}

TEST(FarObjects, AHoldGivenToAThirdNodeIsToldToItAndToTheHome) {
  Recorder nodes;
  FarObjects far(nodes);
  far.HandOver({TestId(1), TestId(2), TestId(3)}, {OnNode(2, 5), OnNode(3, 6), OnNode(1, 2)}, OnNode(3, 7));
  far.Flush();
  // The first is at home on node 2; the second at the receiver's own; the third here.
  EXPECT_EQ(nodes.Take(), (Said{"2:hold", "3:hold"}));
}

}  // namespace
}  // namespace manta::node
