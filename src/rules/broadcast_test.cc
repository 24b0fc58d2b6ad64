#include "rules/broadcast.h"

#include <gtest/gtest.h>

#include <random>

namespace manta::rules {
namespace {

const Id kObject{1, 1};

struct Desk {
  explicit Desk(const Broadcast::Options& options = {}) : rule(options) {}
  void Want(NodeId node) { rule.Want(kObject, node, &actions); }
  NodeId From(NodeId to) const { return rule.Find(kObject)->receivers.at(to).from; }
  std::uint64_t Transfer(NodeId to) const { return rule.Find(kObject)->receivers.at(to).transfer; }
  void Done(NodeId to) { rule.Done(kObject, Transfer(to), &actions); }
  template <typename T>
  std::size_t Count() const {
    std::size_t count = 0;
    for (const BroadcastAction& action : actions) count += std::holds_alternative<T>(action) ? 1 : 0;
    return count;
  }
  void Check() const {
    const Broadcast::Object* object = rule.Find(kObject);
    if (object == nullptr) return;
    std::map<NodeId, std::size_t> serving;
    std::size_t waiting = 0;
    for (const auto& [node, receiver] : object->receivers) {
      ASSERT_FALSE(object->holders.contains(node));
      if (receiver.from == kNoNode) {
        ++waiting;
        continue;
      }
      ++serving[receiver.from];
      ASSERT_TRUE(object->holders.contains(receiver.from) || object->receivers.contains(receiver.from));
      NodeId up = node;  // no cycle: the way up ends
      for (std::size_t steps = 0; up != kNoNode && !object->holders.contains(up); ++steps) {
        ASSERT_LE(steps, object->receivers.size()) << "a cycle";
        up = object->receivers.at(up).from;
      }
    }
    ASSERT_EQ(serving, object->serving);
    ASSERT_EQ(waiting, object->waiting.size());
    for (const auto& [node, count] : serving) ASSERT_LE(count, 2U);
    if (waiting > 0) {
      for (const NodeId holder : object->holders) {
        const auto it = serving.find(holder);
        ASSERT_TRUE(it != serving.end() && it->second == 2U) << "somebody waits beside a free source";
      }
    }
  }

  Broadcast rule;
  BroadcastActions actions;
};

TEST(Broadcast, TheSourceServesTwoAndTheOthersFetchFromThem) {
  Desk desk;
  desk.rule.Has(kObject, 1, &desk.actions);
  for (NodeId node = 2; node <= 8; ++node) desk.Want(node);
  EXPECT_EQ(desk.From(2), 1U);
  EXPECT_EQ(desk.From(3), 1U);
  EXPECT_EQ(desk.From(4), 2U);
  EXPECT_EQ(desk.From(5), 3U);
  EXPECT_EQ(desk.From(6), 2U);
  EXPECT_EQ(desk.From(7), 3U);
  EXPECT_EQ(desk.From(8), 4U);
  desk.Check();
}

TEST(Broadcast, FiftyReceiversAreFiveDeep) {
  Desk desk;
  desk.rule.Has(kObject, 100, &desk.actions);
  for (NodeId node = 1; node <= 50; ++node) desk.Want(node);
  for (NodeId node = 1; node <= 50; ++node) EXPECT_LE(Broadcast::Depth(*desk.rule.Find(kObject), node), 5U);
}

TEST(Broadcast, WithoutPipeliningReceiversServeOnceTheyHaveIt) {
  Desk desk({2, false});
  desk.rule.Has(kObject, 1, &desk.actions);
  for (NodeId node = 2; node <= 6; ++node) desk.Want(node);
  EXPECT_EQ(desk.Count<FetchFrom>(), 2U);
  desk.Done(2);
  EXPECT_EQ(desk.Count<FetchFrom>(), 5U) << "one by node 1 again, two by node 2";
}

TEST(Broadcast, SimultaneousRequestsOfANodeShareOneTransfer) {
  Desk desk;
  desk.rule.Has(kObject, 1, &desk.actions);
  desk.Want(2);
  desk.Want(2);
  EXPECT_EQ(desk.Count<FetchFrom>(), 1U);
  desk.Done(2);
  desk.Want(2);
  EXPECT_EQ(desk.Count<FetchFrom>(), 1U) << "it has it";
}

TEST(Broadcast, ADeadSourcesReceiversGetAnotherOne) {
  Desk desk;
  desk.rule.Has(kObject, 1, &desk.actions);
  for (NodeId node = 2; node <= 8; ++node) desk.Want(node);
  const std::uint64_t old = desk.Transfer(4);
  desk.rule.NodeDown(2, &desk.actions);  // fed 4 and 6
  desk.Check();
  EXPECT_EQ(desk.From(4), 1U) << "the source has a place now";
  EXPECT_NE(desk.From(6), kNoNode);
  EXPECT_EQ(desk.Count<StopFetch>(), 2U);
  desk.rule.Done(kObject, old, &desk.actions);
  EXPECT_TRUE(desk.rule.Find(kObject)->receivers.contains(4)) << "the old transfer's end means nothing";
}

TEST(Broadcast, AFailedSourceIsTriedAgainOnlyWhenThereIsNoOther) {
  Desk desk;
  desk.rule.Has(kObject, 1, &desk.actions);
  desk.rule.Has(kObject, 2, &desk.actions);
  desk.Want(3);
  const NodeId first = desk.From(3);
  desk.rule.Failed(kObject, desk.Transfer(3), &desk.actions);
  EXPECT_NE(desk.From(3), first);
  desk.rule.Failed(kObject, desk.Transfer(3), &desk.actions);
  EXPECT_NE(desk.From(3), kNoNode);
}

TEST(Broadcast, WithoutAnySourceTheObjectIsLost) {
  Desk desk;
  desk.rule.Has(kObject, 1, &desk.actions);
  for (NodeId node = 2; node <= 4; ++node) desk.Want(node);
  desk.rule.NodeDown(1, &desk.actions);
  EXPECT_EQ(desk.Count<CopyLost>(), 3U);
  EXPECT_EQ(desk.rule.objects(), 0U);
}

TEST(Broadcast, AFreedObjectStopsEverybody) {
  Desk desk;
  desk.rule.Has(kObject, 1, &desk.actions);
  desk.Want(2);
  desk.rule.Freed(kObject, &desk.actions);
  EXPECT_EQ(desk.Count<StopFetch>(), 1U);
  EXPECT_EQ(desk.rule.objects(), 0U);
}

TEST(Broadcast, RandomEventsKeepTheTreeWhole) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    Desk desk({2, seed % 2 == 0});
    for (int step = 0; step < 1'000; ++step) {
      const auto node = static_cast<NodeId>(1 + random() % 40);
      const Broadcast::Object* object = desk.rule.Find(kObject);
      std::uint64_t transfer = 0;
      if (object != nullptr && object->receivers.contains(node)) transfer = object->receivers.at(node).transfer;
      switch (random() % 12) {
        case 0:
          desk.rule.NodeDown(node, &desk.actions);
          break;
        case 1:
          desk.rule.Failed(kObject, transfer, &desk.actions);
          break;
        case 2:
          desk.rule.Forgo(kObject, node, &desk.actions);
          break;
        case 3:
          desk.rule.Dropped(kObject, node, &desk.actions);
          break;
        case 4:
          desk.rule.Has(kObject, node, &desk.actions);
          break;
        case 5:
        case 6:
        case 7:
          desk.rule.Done(kObject, transfer, &desk.actions);
          break;
        default:
          desk.Want(node);
      }
      desk.Check();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace manta::rules
