#include "rules/retry.h"

#include <gtest/gtest.h>

namespace manta::rules {
namespace {

OpenCall With(std::int32_t retries) {
  OpenCall call;
  call.retries = retries;
  return call;
}

TEST(Retry, ACallItsProcessDiedInIsBegunAgainAsOftenAsItMayAndThenFails) {
  OpenCall call = With(2);
  EXPECT_EQ(AfterEnd(Ended::kDiedInIt, &call), Fate::kAgain);
  EXPECT_TRUE(call.rerun) << "it may have acted";
  EXPECT_EQ(AfterEnd(Ended::kDiedInIt, &call), Fate::kAgain);
  EXPECT_EQ(call.retries, 0);
  EXPECT_EQ(AfterEnd(Ended::kDiedInIt, &call), Fate::kFails);
}

TEST(Retry, WithoutALimitItIsAlwaysBegunAgain) {
  OpenCall call = With(-1);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(AfterEnd(Ended::kDiedInIt, &call), Fate::kAgain);
  EXPECT_EQ(call.retries, -1);
}

TEST(Retry, ACallItsProcessDidNotDieInLosesNoRetryButMayHaveActed) {
  OpenCall call = With(0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(AfterEnd(Ended::kDiedBesideIt, &call), Fate::kAgain);
  EXPECT_EQ(call.retries, 0);
  EXPECT_TRUE(call.rerun);
}

TEST(Retry, OneThatMustNotBeBegunTwiceAndWasBegunFailsWhereverItsProcessDied) {
  OpenCall call = With(0);
  call.once = true;
  EXPECT_EQ(AfterEnd(Ended::kDiedBesideIt, &call), Fate::kAgain) << "it had not begun";
  call.begun = true;
  EXPECT_EQ(AfterEnd(Ended::kDiedBesideIt, &call), Fate::kFails);
}

TEST(Retry, AnExceptionIsTheEndUnlessItIsToBeRetriedAndThenItActsAgain) {
  OpenCall call = With(1);
  call.rerun = true;
  EXPECT_EQ(AfterEnd(Ended::kThrew, &call), Fate::kFails);
  EXPECT_EQ(AfterEnd(Ended::kAsksAgain, &call), Fate::kAgain);
  EXPECT_TRUE(call.fresh);
  EXPECT_FALSE(call.rerun);
  EXPECT_EQ(AfterEnd(Ended::kAsksAgain, &call), Fate::kFails) << "that was its last retry";
}

TEST(Retry, ACancelledCallIsNeverBegunAgain) {
  for (const Ended ended :
       {Ended::kDiedInIt, Ended::kDiedBesideIt, Ended::kThrew, Ended::kAsksAgain, Ended::kRefused}) {
    OpenCall call = With(-1);
    call.cancelled = true;
    EXPECT_EQ(AfterEnd(ended, &call), Fate::kCancelled);
  }
  for (const bool replays : {false, true}) {
    for (const bool ahead : {false, true}) {
      OpenCall call = With(-1);
      call.cancelled = true;
      EXPECT_EQ(AfterLoss({replays, true, ahead, ActorLoss::kNone}, 0, &call), Fate::kCancelled);
    }
  }
}

TEST(Retry, WhatAnActorRefusesFailsThoughRetriesAreLeft) {
  OpenCall call = With(3);
  EXPECT_EQ(AfterEnd(Ended::kRefused, &call), Fate::kFails);
}

// ---- actors ----

TEST(ActorLoss, OfCallsSentToAnActorThatReplaysOnlyTheOneItDiedInLosesARetry) {
  const ActorLoss loss{true, true, false, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    OpenCall call = With(3);
    call.fresh = true;
    ASSERT_EQ(AfterLoss(loss, i, &call), Fate::kAgain);
    EXPECT_EQ(call.retries, i == 1 ? 2 : 3);
    EXPECT_EQ(call.begun, i == 1);
    EXPECT_FALSE(call.once);
    EXPECT_TRUE(call.rerun) << "its answer may be in the journal";
    EXPECT_FALSE(call.fresh) << "and is the answer, whatever it was sent as";
  }
}

TEST(ActorLoss, OneThatUsedUpItsRetriesIsSentOnceMoreToBeAnsweredOrRefused) {
  OpenCall call = With(1);
  const ActorLoss loss{true, true, false, 0};
  ASSERT_EQ(AfterLoss(loss, 0, &call), Fate::kAgain);
  EXPECT_FALSE(call.once);
  ASSERT_EQ(AfterLoss(loss, 0, &call), Fate::kAgain);
  EXPECT_TRUE(call.begun && call.once);
  // Whatever happens then, it is not forgotten that it must not be begun.
  ASSERT_EQ(AfterLoss({true, true, false, ActorLoss::kNone}, 0, &call), Fate::kAgain);
  EXPECT_TRUE(call.begun && call.once);
  EXPECT_EQ(call.retries, 0);
}

TEST(ActorLoss, ABrokenConnectionToAnActorThatReplaysCostsNothing) {
  OpenCall call = With(0);
  call.once = true;
  ASSERT_EQ(AfterLoss({true, false, true, 0}, 0, &call), Fate::kAgain);
  EXPECT_TRUE(call.rerun);
  EXPECT_FALSE(call.begun);
}

TEST(ActorLoss, WithoutReplayWhatItHadBegunCountsAndWhatFollowedTheCallItDiedInWasNotBegun) {
  const ActorLoss loss{false, true, true, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    OpenCall call = With(0);
    EXPECT_EQ(AfterLoss(loss, i, &call), i <= 1 ? Fate::kFails : Fate::kAgain);
    EXPECT_FALSE(call.rerun);
  }
}

TEST(ActorLoss, WithoutReplayNoneWasBegunWhenItDiedInAnothersCall) {
  OpenCall call = With(0);
  EXPECT_EQ(AfterLoss({false, true, true, ActorLoss::kNone}, 0, &call), Fate::kAgain);
  EXPECT_EQ(AfterLoss({false, true, false, ActorLoss::kNone}, 0, &call), Fate::kFails) << "it had it in its hands";
}

TEST(ActorLoss, WithoutReplayAnyMayHaveBegunWhenTheConnectionBroke) {
  OpenCall call = With(1);
  EXPECT_EQ(AfterLoss({false, false, true, ActorLoss::kNone}, 5, &call), Fate::kAgain);
  EXPECT_EQ(call.retries, 0);
  EXPECT_TRUE(call.rerun);
  EXPECT_EQ(AfterLoss({false, false, true, ActorLoss::kNone}, 5, &call), Fate::kFails);
}

}  // namespace
}  // namespace manta::rules
