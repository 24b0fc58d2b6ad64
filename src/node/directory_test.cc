#include "node/directory.h"

#include "node/test_node.h"

namespace manta::node {
namespace {

const Id kObject{0x1111222233334444, 1};
const Id kInner{0x5555666677778888, 1};

class DirectoryTest : public NodeTest {
 protected:
  void SetUp() override {
    Start(1);
    owner_ = Driver(1);
    other_ = Driver(2);
  }
  static wire::Publish Value(const Id& id, const std::string& bytes, std::vector<Id> contained = {}) {
    wire::Publish message;
    message.object = id;
    message.outcome.bytes = bytes;
    message.outcome.contained = std::move(contained);
    return message;
  }
  [[nodiscard]] wire::WaitObjects WaitFor(const Id& id) const { return {{id}, {owner_->welcome.process}}; }
  // All that anybody sent has been seen, and what nobody holds is gone.
  void Settle() {
    owner_->Settle();
    other_->Settle();
  }

  std::unique_ptr<TestClient> owner_;
  std::unique_ptr<TestClient> other_;
};

TEST_F(DirectoryTest, AnObjectThatIsThereIsAnsweredAtOnce) {
  owner_->Send(Value(kObject, "seven"));
  Settle();
  other_->Send(WaitFor(kObject));
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->object, kObject);
  EXPECT_TRUE(ready->outcome.ready);
  EXPECT_EQ(ready->outcome.bytes, "seven");
}

TEST_F(DirectoryTest, AnExpectedObjectIsWaitedFor) {
  owner_->Send(wire::Expect{{kObject}, {}});
  Settle();
  other_->Send(WaitFor(kObject));
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
  owner_->Send(Value(kObject, "late"));
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.bytes, "late");
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
}

TEST_F(DirectoryTest, AWaitMayComeBeforeAnybodyAnnouncedTheObject) {
  other_->Send(WaitFor(kObject));
  Settle();
  owner_->Send(Value(kObject, "x"));
  EXPECT_TRUE(other_->Await<wire::ObjectReady>().has_value());
}

TEST_F(DirectoryTest, WhatADeadOwnerDidNotPublishIsLostByName) {
  owner_->Send(wire::Expect{{kObject}, {}});
  Settle();
  other_->Send(WaitFor(kObject));
  Settle();
  owner_->Close();
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.failure.code, Code::kLost);
  EXPECT_NE(ready->outcome.failure.message.find(ToString(kObject)), std::string::npos)
      << ready->outcome.failure.message;
}

TEST_F(DirectoryTest, WhoCalledTheTaskOfADeadOwnerIsAskedToHaveItMadeAgain) {
  const Id task = Id{77, 1};
  auto third = Driver(3);
  owner_->Send(wire::Expect{{kObject}, {task, other_->welcome.process}});
  Settle();
  third->Send(wire::Hold{{kObject}, kNoProcess});
  third->Send(WaitFor(kObject));
  third->Settle();
  owner_->Close();
  const auto orphaned = other_->Await<wire::Orphaned>();
  ASSERT_TRUE(orphaned.has_value());
  EXPECT_EQ(orphaned->object, kObject);
  EXPECT_EQ(orphaned->task, task);
  EXPECT_FALSE(third->Has(wire::Kind::kObjectReady));
  // The task runs again, in another process, which announces it: who waits is told by that one.
  auto heir = Driver(4);
  heir->Send(wire::Expect{{kObject}, {task, other_->welcome.process}});
  other_->Send(wire::Unmade{kObject, "the task is over", orphaned->ask});
  other_->Settle();
  EXPECT_FALSE(third->Has(wire::Kind::kObjectReady));
  heir->Send(Value(kObject, "again"));
  const auto ready = third->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.bytes, "again");
}

TEST_F(DirectoryTest, WhoRanTheTaskWhenItWasAskedIsAskedAgainWhenThatIsOver) {
  const Id task = Id{77, 1};
  owner_->Send(wire::Expect{{kObject}, {task, other_->welcome.process}});
  Settle();
  other_->Send(wire::Hold{{kObject}, kNoProcess});
  other_->Settle();
  owner_->Close();
  const auto asked = other_->Await<wire::Orphaned>();
  ASSERT_TRUE(asked.has_value());
  other_->Send(wire::Unmade{kObject, "", asked->ask});
  const auto again = other_->Await<wire::Orphaned>();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->task, task);
}

TEST_F(DirectoryTest, WhenNobodyCanMakeItAgainItIsLostAndTheReasonIsTold) {
  auto third = Driver(3);
  owner_->Send(wire::Expect{{kObject}, {Id{77, 1}, other_->welcome.process}});
  Settle();
  third->Send(wire::Hold{{kObject}, kNoProcess});
  third->Send(WaitFor(kObject));
  third->Settle();
  owner_->Close();
  const auto first = other_->Await<wire::Orphaned>();
  ASSERT_TRUE(first.has_value());
  other_->Send(wire::Unmade{kObject, "an answer to something else", first->ask + 1});
  other_->Send(wire::Unmade{kObject, "no record is left", first->ask});
  // Then who holds it.
  const auto orphaned = third->Await<wire::Orphaned>();
  ASSERT_TRUE(orphaned.has_value());
  EXPECT_TRUE(orphaned->task.empty());
  third->Send(wire::Unmade{kObject, "nor here", orphaned->ask});
  const auto ready = third->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.failure.code, Code::kLost);
  EXPECT_NE(ready->outcome.failure.message.find("no record is left"), std::string::npos)
      << ready->outcome.failure.message;
}

TEST_F(DirectoryTest, WhoWasAskedAndDiesIsNotWaitedFor) {
  auto third = Driver(3);
  owner_->Send(wire::Expect{{kObject}, {Id{77, 1}, other_->welcome.process}});
  Settle();
  third->Send(WaitFor(kObject));
  third->Settle();
  owner_->Close();
  ASSERT_TRUE(other_->Await<wire::Orphaned>().has_value());
  other_->Close();
  const auto ready = third->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.failure.code, Code::kLost);
}

TEST_F(DirectoryTest, WhatADeadOwnerDidPublishStaysWhileSomebodyHoldsIt) {
  owner_->Send(Value(kObject, "kept"));
  other_->Send(wire::Hold{{kObject}, kNoProcess});
  Settle();
  const wire::WaitObjects wait = WaitFor(kObject);
  owner_->Close();
  for (int i = 0; i < 10; ++i) other_->Settle();
  other_->Send(wait);
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.bytes, "kept");
}

TEST_F(DirectoryTest, WaitingForAnObjectOfAnUnknownOwnerFailsAtOnce) {
  other_->Send(wire::WaitObjects{{kObject}, {4000}});
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.failure.code, Code::kLost);
  other_->Send(wire::WaitObjects{{kObject}, {}});
  EXPECT_TRUE(other_->Await<wire::ObjectReady>().has_value());
}

TEST_F(DirectoryTest, AnObjectNobodyHoldsIsForgotten) {
  owner_->Send(Value(kObject, "x"));
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  // Not known any more: the owner is asked anew, and does not answer.
  other_->Send(WaitFor(kObject));
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
}

TEST_F(DirectoryTest, AHoldAlreadySentSavesTheObjectFromADropReadBeforeIt) {
  owner_->Send(Value(kObject, "x"));
  Settle();
  // Both are in the sockets before the daemon looks; whichever it reads first, the object stays.
  other_->Send(wire::Hold{{kObject}, kNoProcess});
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  other_->Send(WaitFor(kObject));
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.bytes, "x");
}

TEST_F(DirectoryTest, AHoldAfterADropOfTheSameProcessCounts) {
  owner_->Send(Value(kObject, "x"));
  owner_->Send(wire::Drop{{kObject}, {1}});
  owner_->Send(wire::Hold{{kObject}, kNoProcess});
  Settle();
  other_->Send(WaitFor(kObject));
  EXPECT_TRUE(other_->Await<wire::ObjectReady>().has_value());
}

TEST_F(DirectoryTest, AWorkerMayHoldOnBehalfOfItsOwner) {
  other_->Send(Value(kObject, "x"));
  other_->Send(wire::Hold{{kObject}, owner_->welcome.process});
  other_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  owner_->Send(wire::WaitObjects{{kObject}, {other_->welcome.process}});
  EXPECT_TRUE(owner_->Await<wire::ObjectReady>().has_value());
}

TEST_F(DirectoryTest, ADropThatOvertakesTheHoldThatCausedItIsNotLost) {
  other_->Send(Value(kObject, "x"));
  Settle();
  // The owner was handed the object through shared memory and let go of it, before the daemon read that it was.
  owner_->Send(wire::Drop{{kObject}, {1}});
  daemon_->loop().Drain();
  other_->Send(wire::Hold{{kObject}, owner_->welcome.process});
  other_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  owner_->Send(wire::WaitObjects{{kObject}, {other_->welcome.process}});
  EXPECT_FALSE(owner_->Has(wire::Kind::kObjectReady));
}

TEST_F(DirectoryTest, AHoldOnBehalfOfAProcessOutlivesTheDropOfAnEarlierOne) {
  other_->Send(Value(kObject, "x"));
  for (const bool drop_first : {true, false}) {
    other_->Send(wire::Hold{{kObject}, owner_->welcome.process});
    Settle();
    // The owner let go of the one it was lent before, while it is lent again.
    const wire::Drop drop{{kObject}, {drop_first ? 1U : 2U}};
    if (drop_first) owner_->Send(drop);
    other_->Send(wire::Hold{{kObject}, owner_->welcome.process});
    if (!drop_first) owner_->Send(drop);
    Settle();
  }
  other_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  const wire::WaitObjects wait{{kObject}, {other_->welcome.process}};
  owner_->Send(wait);
  EXPECT_TRUE(owner_->Await<wire::ObjectReady>().has_value());
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  owner_->Send(wait);
  EXPECT_FALSE(owner_->Has(wire::Kind::kObjectReady)) << "as many as were given have been dropped";
}

TEST_F(DirectoryTest, PublishingWhatWasExpectedIsNoSecondHold) {
  owner_->Send(wire::Expect{{kObject}, {}});
  wire::Publish publish = Value(kObject, "x");
  publish.expected = true;
  owner_->Send(publish);
  Settle();
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  other_->Send(WaitFor(kObject));
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
}

TEST_F(DirectoryTest, ATaskRunAgainElsewhereHoldsItsObjectsToo) {
  owner_->Send(Value(kObject, "x"));
  other_->Send(Value(kObject, "x"));  // ids are derived: the same task put it there, on another worker
  Settle();
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  other_->Send(WaitFor(kObject));
  EXPECT_TRUE(other_->Await<wire::ObjectReady>().has_value());
}

TEST_F(DirectoryTest, ADropWithoutCountsEndsTheConnection) {
  other_->Send(wire::Drop{{kObject}, {}});
  EXPECT_TRUE(other_->AwaitClose());
}

TEST_F(DirectoryTest, AnObjectHoldsWhatItContains) {
  owner_->Send(Value(kInner, "inner"));
  owner_->Send(Value(kObject, "outer", {kInner}));
  owner_->Send(wire::Drop{{kInner}, {1}});
  Settle();
  other_->Send(WaitFor(kInner));
  ASSERT_TRUE(other_->Await<wire::ObjectReady>().has_value());
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  other_->Send(WaitFor(kInner));
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
}

TEST_F(DirectoryTest, AStrangerCannotSayWhatAnothersObjectIs) {
  owner_->Send(wire::Expect{{kObject}, {}});
  Settle();
  other_->Send(Value(kObject, "forged"));
  other_->Send(WaitFor(kObject));
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
}

TEST_F(DirectoryTest, AFloodOfDropsOfUnknownThingsHarmsNobody) {
  wire::Drop drop;
  for (std::uint64_t i = 0; i < 1000; ++i) drop.objects.push_back(Id{i, i});
  drop.counts.assign(drop.objects.size(), 7);
  for (int i = 0; i < 10; ++i) other_->Send(drop);
  owner_->Send(Value(kObject, "x"));
  Settle();
  other_->Send(WaitFor(kObject));
  EXPECT_TRUE(other_->Await<wire::ObjectReady>().has_value());
}

TEST_F(DirectoryTest, SegmentsAreLentOpenedAndUnknownOnesAreAnError) {
  owner_->Send(wire::SegmentRequest{1 << 20}, 5);
  const std::optional<wire::Frame> lent = owner_->Await(wire::Kind::kSegmentLent);
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->fds.size(), 1U);
  EXPECT_EQ(lent->call, 5U);
  const wire::SegmentLent segment = *lent->As<wire::SegmentLent>();
  other_->Send(wire::OpenSegment{segment.segment}, 6);
  const std::optional<wire::Frame> opened = other_->Await(wire::Kind::kSegmentOpened);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->fds.size(), 1U);
  other_->Send(wire::OpenSegment{segment.segment + 100}, 7);
  EXPECT_TRUE(other_->Await<wire::Failed>().has_value());
  other_->Send(wire::Restore{kObject}, 8);
  EXPECT_TRUE(other_->Await<wire::Failed>().has_value());
  other_->Send(wire::SegmentReturn{77});
  other_->Send(wire::FreeObjects{{kObject}, {}});
  owner_->Send(wire::SegmentRequest{1ULL << 40}, 9);
  const auto failed = owner_->Await<wire::Failed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure.code, Code::kOutOfMemory) << failed->failure.message;
}

TEST_F(DirectoryTest, ALostObjectIsItsOwnersToMakeAgainAndWhoAsksThenWaitsForThat) {
  wire::Publish message = Value(kObject, "");
  message.outcome.place = Place{1, 2, 3, 4, 5};
  owner_->Send(message);
  Settle();
  const Place elsewhere{9, 2, 3, 4, 5};
  other_->Send(wire::ObjectLost{kObject, elsewhere, owner_->welcome.process, "not there"});
  Settle();
  EXPECT_FALSE(owner_->Has(wire::Kind::kObjectLost));  // who asks is told where it is
  other_->Send(wire::ObjectLost{kObject, message.outcome.place, owner_->welcome.process, "not there"});
  other_->Send(WaitFor(kObject));
  const auto lost = owner_->Await<wire::ObjectLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->object, kObject);
  EXPECT_FALSE(other_->Has(wire::Kind::kObjectReady));
  message.expected = true;
  message.outcome.place = elsewhere;
  owner_->Send(message);
  const auto ready = other_->Await<wire::ObjectReady>();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->outcome.place, elsewhere);
}

TEST_F(DirectoryTest, TheOwnerOfAStoredObjectHearsWhenNobodyHoldsItAnyMore) {
  wire::Publish message = Value(kObject, "");
  message.outcome.place = Place{1, 2, 3, 0, 5};
  owner_->Send(message);
  Settle();
  other_->Send(wire::Hold{{kObject}, kNoProcess, {owner_->welcome.process}});
  Settle();
  owner_->Send(wire::Drop{{kObject}, {1}});
  Settle();
  EXPECT_FALSE(owner_->Has(wire::Kind::kUnheld));
  other_->Send(wire::Drop{{kObject}, {1}});
  const auto unheld = owner_->Await<wire::Unheld>();
  ASSERT_TRUE(unheld.has_value());
  EXPECT_EQ(unheld->objects, std::vector<Id>{kObject});
}

}  // namespace
}  // namespace manta::node
