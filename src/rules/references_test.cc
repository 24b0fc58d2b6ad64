#include "rules/references.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace manta::rules {
namespace {

Id Obj(std::uint64_t n) { return Id{n, 1}; }
Holder Proc(ProcessId process) { return Holder::Process(process); }
Holder In(std::uint64_t n) { return Holder::Container(Obj(n)); }
using Ids = std::vector<Id>;

TEST(References, AnObjectIsTakenWhenItsLastHolderLetsGo) {
  References refs;
  refs.Hold(Obj(1), Proc(1));
  refs.Hold(Obj(1), Proc(2));
  refs.Drop(Obj(1), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  refs.Drop(Obj(1), Proc(2));
  EXPECT_TRUE(refs.HasSuspects());
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)});
  EXPECT_FALSE(refs.HasSuspects());
  EXPECT_FALSE(refs.Known(Obj(1)));
  EXPECT_EQ(refs.TakeUnheld(), Ids{}) << "only once";
}

TEST(References, AProcessHoldsUntilItDroppedAsOftenAsItHeld) {
  References refs;
  for (int i = 0; i < 4; ++i) refs.Hold(Obj(1), Proc(1));
  EXPECT_EQ(refs.Holders(Obj(1)), 1U);
  refs.Drop(Obj(1), Proc(1));
  refs.Drop(Obj(1), Proc(1), 2);
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  EXPECT_TRUE(refs.Holds(Obj(1), Proc(1)));
  refs.Drop(Obj(1), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)});
  EXPECT_FALSE(refs.HoldsAny(Proc(1)));
}

TEST(References, TheProcessesThatHoldAnObjectCanBeAskedFor) {
  References refs;
  refs.Hold(Obj(1), Proc(9));
  refs.Hold(Obj(1), Proc(2));
  refs.Hold(Obj(1), In(5));
  refs.Hold(Obj(2), Proc(3));
  refs.Drop(Obj(1), Proc(4));  // before its Hold
  EXPECT_EQ(refs.ProcessesThatHold(Obj(1)), (std::vector<ProcessId>{2, 9}));
  EXPECT_EQ(refs.ProcessesThatHold(Obj(3)), std::vector<ProcessId>{});
}

TEST(References, ADropThatOvertakesItsHoldEndsItWhenItComes) {
  References refs;
  refs.Hold(Obj(1), Proc(2));
  refs.Drop(Obj(1), Proc(1), 2);
  EXPECT_FALSE(refs.Holds(Obj(1), Proc(1)));
  EXPECT_FALSE(refs.HoldsAny(Proc(1)));
  refs.Hold(Obj(1), Proc(1));
  refs.Hold(Obj(1), Proc(1));
  EXPECT_EQ(refs.Holders(Obj(1)), 1U) << "only process 2";
  refs.Hold(Obj(1), Proc(1));
  EXPECT_EQ(refs.Holders(Obj(1)), 2U);
  refs.Drop(Obj(1), Proc(2));
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  refs.Drop(Obj(1), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)});
}

TEST(References, AHoldThatWasDroppedBeforeItCameLeavesNothingBehind) {
  References refs;
  refs.Drop(Obj(1), Proc(1));
  EXPECT_EQ(refs.size(), 0U);
  refs.Hold(Obj(1), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)}) << "whoever stored it must hear that it may go";
  EXPECT_EQ(refs.size(), 0U);
}

TEST(References, AProcessThatDiesTakesItsUnpaidDropsAlong) {
  References refs;
  refs.Hold(Obj(1), Proc(2));
  refs.Drop(Obj(1), Proc(1));
  refs.ProcessDied(1);
  refs.Hold(Obj(1), Proc(1));  // another process by the same number
  EXPECT_EQ(refs.Holders(Obj(1)), 2U);
}

TEST(References, AHoldBetweenTheDropAndTheTakeRescues) {
  References refs;
  refs.Hold(Obj(1), Proc(1));
  refs.Drop(Obj(1), Proc(1));
  refs.Hold(Obj(1), Proc(2));  // a worker's, read from another socket
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  EXPECT_TRUE(refs.Known(Obj(1)));
  refs.Drop(Obj(1), Proc(2));
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)});
}

TEST(References, ADropByAProcessThatDidNotHoldFreesNothing) {
  References refs;
  refs.Hold(Obj(1), Proc(1));
  refs.Drop(Obj(1), Proc(2));
  refs.Drop(Obj(2), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  EXPECT_TRUE(refs.Holds(Obj(1), Proc(1)));
}

TEST(References, WhatAContainerHoldsGoesWithItAndAfterIt) {
  References refs;
  for (std::uint64_t i = 1; i <= 4; ++i) refs.Hold(Obj(i), Proc(1));
  refs.SetContained(Obj(1), {Obj(2), Obj(2)});
  refs.SetContained(Obj(2), {Obj(3), Obj(4)});
  for (std::uint64_t i = 2; i <= 3; ++i) refs.Drop(Obj(i), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  refs.Drop(Obj(1), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), (Ids{Obj(1), Obj(2), Obj(3)}));
  EXPECT_TRUE(refs.Known(Obj(4))) << "process 1 holds it still";
}

TEST(References, SettingWhatIsContainedReplacesWhatWas) {
  References refs;
  refs.Hold(Obj(1), Proc(1));
  refs.SetContained(Obj(1), {Obj(2), Obj(3)});
  refs.SetContained(Obj(1), {Obj(3), Obj(4)});  // a retry published it again
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(2)});
  refs.SetContained(Obj(1), {});  // an actor that died lets go of its arguments
  Ids gone = refs.TakeUnheld();
  std::sort(gone.begin(), gone.end());
  EXPECT_EQ(gone, (Ids{Obj(3), Obj(4)}));
  EXPECT_TRUE(refs.Known(Obj(1)));
}

TEST(References, AContainerThatNobodyHoldsDoesNotKeepItsContents) {
  References refs;
  refs.SetContained(Obj(1), {Obj(2)});
  EXPECT_EQ(refs.TakeUnheld(), (Ids{Obj(1), Obj(2)}));
  EXPECT_EQ(refs.size(), 0U);
}

TEST(References, AnObjectCannotHoldItself) {
  References refs;
  refs.Hold(Obj(1), Proc(1));
  refs.SetContained(Obj(1), {Obj(1)});
  refs.Drop(Obj(1), Proc(1));
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)});
}

TEST(References, ADeadProcessHoldsNothing) {
  References refs;
  refs.Hold(Obj(1), Proc(1));
  refs.Hold(Obj(2), Proc(1));
  refs.Hold(Obj(2), Proc(2));
  refs.ProcessDied(1);
  refs.ProcessDied(9);
  EXPECT_EQ(refs.TakeUnheld(), Ids{Obj(1)});
  EXPECT_EQ(refs.Holders(Obj(2)), 1U);
}

TEST(References, ALongChainDoesNotOverflowTheStack) {
  References refs;
  refs.Hold(Obj(0), Proc(1));
  for (std::uint64_t i = 0; i < 100'000; ++i) refs.SetContained(Obj(i), {Obj(i + 1)});
  refs.Drop(Obj(0), Proc(1));
  EXPECT_EQ(refs.TakeUnheld().size(), 100'001U);
  EXPECT_EQ(refs.size(), 0U);
}

// The same by brute force: a count for each holder and object, and a sweep over everything.
class Naive {
 public:
  void Hold(const Id& object, const Holder& holder) {
    if (holder.process == kNoProcess) {
      if (holder.container == object) return;
      known_.insert(holder.container);
    }
    known_.insert(object);
    std::int64_t& count = pairs_[{holder, object}];
    count = holder.process == kNoProcess ? 1 : count + 1;
  }
  void Drop(const Id& object, const Holder& holder, std::uint32_t count) { pairs_[{holder, object}] -= count; }
  void SetContained(const Id& container, const std::vector<Id>& contained) {
    DropAll(Holder::Container(container));
    for (const Id& id : contained) Hold(id, Holder::Container(container));
  }
  void DropAll(const Holder& holder) {
    std::erase_if(pairs_, [&](const auto& pair) { return pair.first.first == holder; });
  }
  std::set<Id> TakeUnheld() {
    std::set<Id> taken;
    for (bool again = true; again;) {
      again = false;
      const std::set<Id> known = known_;
      for (const Id& id : known) {
        if (Holders(id) > 0) continue;
        known_.erase(id);
        DropAll(Holder::Container(id));
        taken.insert(id);
        again = true;
      }
    }
    return taken;
  }
  std::size_t Holders(const Id& id) const {
    return static_cast<std::size_t>(std::count_if(
        pairs_.begin(), pairs_.end(), [&](const auto& pair) { return pair.first.second == id && pair.second > 0; }));
  }
  bool Holds(const Id& id, const Holder& holder) const {
    const auto it = pairs_.find({holder, id});
    return it != pairs_.end() && it->second > 0;
  }
  const std::set<Id>& known() const { return known_; }

 private:
  std::map<std::pair<Holder, Id>, std::int64_t> pairs_;
  std::set<Id> known_;
};

TEST(References, AgreesWithANaiveModelOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    References refs;
    Naive naive;
    constexpr std::uint64_t kObjects = 24;
    for (int step = 0; step < 4000; ++step) {
      const Id object = Obj(below(kObjects));
      const auto process = static_cast<ProcessId>(1 + below(5));
      switch (below(8)) {
        case 0:
        case 1:
          refs.Hold(object, Proc(process));
          naive.Hold(object, Proc(process));
          break;
        case 2:
        case 3: {
          // Mostly what is held, or everything would be owed soon.
          if (!naive.Holds(object, Proc(process)) && below(4) != 0) break;
          const auto count = static_cast<std::uint32_t>(1 + below(2));
          refs.Drop(object, Proc(process), count);
          naive.Drop(object, Proc(process), count);
          break;
        }
        case 4: {
          // What is contained is older: no cycles.
          Ids contained;
          for (std::uint64_t i = below(4); i > 0 && object.hi > 0; --i) contained.push_back(Obj(below(object.hi)));
          refs.SetContained(object, contained);
          // An empty list makes nothing known.
          naive.SetContained(object, contained);
          break;
        }
        case 5: {
          const std::uint64_t container = object.hi + 1 + below(3);
          refs.Hold(object, In(container));
          naive.Hold(object, In(container));
          break;
        }
        case 6:
          if (below(6) == 0) {
            refs.ProcessDied(process);
            naive.DropAll(Proc(process));
          }
          break;
        default: {
          const Ids taken = refs.TakeUnheld();
          const std::set<Id> distinct(taken.begin(), taken.end());
          ASSERT_EQ(distinct.size(), taken.size());
          ASSERT_EQ(distinct, naive.TakeUnheld()) << "seed " << seed << " step " << step;
        }
      }
      ASSERT_EQ(refs.size(), naive.known().size()) << "seed " << seed << " step " << step;
      for (const Id& id : naive.known()) ASSERT_EQ(refs.Holders(id), naive.Holders(id));
      ASSERT_EQ(refs.Holds(object, Proc(process)), naive.Holds(object, Proc(process)));
    }
    for (ProcessId process = 1; process <= 5; ++process) refs.ProcessDied(process);
    (void)refs.TakeUnheld();
    EXPECT_EQ(refs.size(), 0U) << "nothing leaks";
  }
}

TEST(References, TenThousandRefsInAMessageStayCheap) {
  References refs;
  Ids ids;
  for (std::uint64_t i = 1; i <= 10'000; ++i) ids.push_back(DeriveId(Obj(7), 1, i));
  for (int round = 0; round < 20; ++round) {
    const Id container = Obj(1'000 + static_cast<std::uint64_t>(round));
    refs.Hold(container, Proc(1));
    for (const Id& id : ids) refs.Hold(id, Proc(1));
    refs.SetContained(container, ids);
    for (const Id& id : ids) refs.Drop(id, Proc(1));
  }
  EXPECT_EQ(refs.TakeUnheld(), Ids{});
  refs.ProcessDied(1);
  EXPECT_EQ(refs.TakeUnheld().size(), 10'020U);
}

}  // namespace
}  // namespace manta::rules
