#include "rules/chain_member.h"

#include <gtest/gtest.h>

#include "rules/chain_client.h"
#include "rules/chain_sessions.h"

namespace manta::rules {
namespace {

constexpr Id kClient{1, 1};

// The messages of one kind that were sent, in order.
template <typename M>
std::vector<M> Sent(const ChainActions& actions) {
  std::vector<M> out;
  for (const ChainAction& action : actions) {
    if (const auto* send = std::get_if<ChainSend>(&action)) {
      if (const auto* message = std::get_if<M>(&send->message)) out.push_back(*message);
    }
  }
  return out;
}
template <typename A>
std::size_t Count(const ChainActions& actions) {
  std::size_t count = 0;
  for (const ChainAction& action : actions) count += std::holds_alternative<A>(action) ? 1 : 0;
  return count;
}

class ChainMemberTest : public testing::Test {
 protected:
  ChainActions Receive(const ChainMessage& message) {
    ChainActions actions;
    member_.Receive(now_, message, &actions);
    return actions;
  }
  ChainActions Stored(std::uint64_t position) {
    ChainActions actions;
    member_.Stored(now_, 1, position, &actions);
    return actions;
  }
  ChainActions Configure(std::uint64_t epoch, std::vector<MemberId> members, MemberId joiner = kNoMember,
                         bool switching = false) {
    return Receive(ChainConfigure{{epoch, std::move(members), joiner, switching}, 9});
  }
  ChainActions Entries(std::uint64_t epoch, MemberId from, std::uint64_t previous, std::uint64_t count,
                       std::uint64_t last) {
    ChainEntries entries{epoch, from, previous, {}, last};
    for (std::uint64_t i = previous + 1; i <= previous + count; ++i)
      entries.records.push_back({epoch, i, kClient, i, "x"});
    return Receive(entries);
  }

  ChainTimes times_;
  std::int64_t now_ = 1'000'000;
  ChainMember member_{2, 9, times_};
};

TEST_F(ChainMemberTest, AHeadForwardsWhatIsStoredAndNotBefore) {
  Configure(5, {2, 3});
  Receive(ChainResume{5, 3, 0, 0});
  ChainActions actions = Receive(ChainWrite{kClient, 1, "x"});
  EXPECT_EQ(Count<ChainStore>(actions), 1U);
  EXPECT_TRUE(Sent<ChainEntries>(actions).empty());
  actions = Stored(1);
  ASSERT_EQ(Sent<ChainEntries>(actions).size(), 1U);
  EXPECT_EQ(Sent<ChainEntries>(actions)[0].records.size(), 1U);
  EXPECT_TRUE(Sent<ChainWritten>(actions).empty()) << "the tail answers";
}

TEST_F(ChainMemberTest, AWriteThatIsSentAgainIsStoredOnceAndAnsweredWhenAllHaveIt) {
  Configure(5, {2, 3});
  Receive(ChainResume{5, 3, 0, 0});
  Receive(ChainWrite{kClient, 1, "x"});
  EXPECT_EQ(Count<ChainStore>(Receive(ChainWrite{kClient, 1, "x"})), 0U);
  Stored(1);
  EXPECT_EQ(Sent<ChainWritten>(Receive(ChainAcked{5, 3, 1, 1})).size(), 1U);
  const ChainActions again = Receive(ChainWrite{kClient, 1, "x"});
  EXPECT_EQ(Count<ChainStore>(again), 0U);
  ASSERT_EQ(Sent<ChainWritten>(again).size(), 1U);
  EXPECT_EQ(Sent<ChainWritten>(again)[0].position, 1U);
}

TEST_F(ChainMemberTest, ATailAnswersNothingBeforeItsGrantAndNoReadAfterItsLease) {
  Configure(5, {1, 2});
  Entries(5, 1, 0, 1, 1);
  EXPECT_TRUE(Sent<ChainWritten>(Stored(1)).empty());
  EXPECT_EQ(Count<ChainLookup>(Receive(ChainRead{kClient, 1, "k"})), 0U) << "held";
  const ChainActions granted = Receive(ChainGrant{5, now_});
  EXPECT_EQ(Sent<ChainWritten>(granted).size(), 1U);
  EXPECT_EQ(Count<ChainLookup>(granted), 1U);
  EXPECT_EQ(Count<ChainLookup>(Receive(ChainRead{kClient, 2, "k"})), 1U);
  now_ += times_.lease_us;
  EXPECT_EQ(Count<ChainLookup>(Receive(ChainRead{kClient, 3, "k"})), 0U);
  ChainActions late;
  member_.ReadDone(now_, 2, "v", &late);
  EXPECT_TRUE(Sent<ChainValue>(late).empty());
  EXPECT_EQ(Sent<ChainRedirect>(late).size(), 1U);
}

TEST_F(ChainMemberTest, RecordsOfAnotherEpochOrAfterAGapAreNotTaken) {
  Configure(5, {1, 2, 3});
  EXPECT_EQ(Count<ChainStore>(Entries(4, 1, 0, 1, 1)), 0U);
  EXPECT_EQ(Count<ChainStore>(Entries(5, 3, 0, 1, 1)), 0U) << "not the predecessor";
  now_ += times_.resend_us;
  const ChainActions gap = Entries(5, 1, 3, 1, 4);
  EXPECT_EQ(Count<ChainStore>(gap), 0U);
  EXPECT_EQ(Sent<ChainResume>(gap).size(), 1U);
  EXPECT_EQ(Count<ChainStore>(Entries(5, 1, 0, 4, 4)), 4U);
  EXPECT_EQ(Count<ChainStore>(Entries(5, 1, 2, 3, 5)), 1U) << "those it has already are skipped";
}

TEST_F(ChainMemberTest, ANewSuccessorGetsWhatItLacks) {
  Configure(5, {2, 3});
  for (std::uint64_t i = 1; i <= 10; ++i) {
    Receive(ChainWrite{kClient, i, "x"});
    Stored(i);
  }
  Configure(6, {2, 4});
  const std::vector<ChainEntries> sent = Sent<ChainEntries>(Receive(ChainResume{6, 4, 7, 5}));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].previous, 7U);
  EXPECT_EQ(sent[0].records.size(), 3U);
}

TEST_F(ChainMemberTest, ASuccessorThatKnowsTheEpochFirstIsServedWhenWeHearOfIt) {
  Configure(5, {2, 3});
  EXPECT_TRUE(Sent<ChainEntries>(Receive(ChainResume{6, 3, 0, 0})).empty());
  EXPECT_EQ(Sent<ChainEntries>(Configure(6, {2, 3})).size(), 1U);
}

TEST_F(ChainMemberTest, OverANewLinkASuccessorGetsAgainWhatItHasNotAcknowledged) {
  Configure(5, {2, 3});
  Receive(ChainResume{5, 3, 0, 0});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Receive(ChainWrite{kClient, i, "x"});
    Stored(i);
  }
  Receive(ChainAcked{5, 3, 1, 1});
  ChainActions actions;
  member_.Connected(now_, 3, &actions);
  const std::vector<ChainEntries> sent = Sent<ChainEntries>(actions);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].previous, 1U);
  EXPECT_EQ(sent[0].records.size(), 2U);
}

TEST_F(ChainMemberTest, AJoinerWhoseLastRecordIsOfAnotherEpochMustThrowItsLogAway) {
  Configure(5, {2});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Receive(ChainWrite{kClient, i, "x"});
    Stored(i);
  }
  Configure(6, {2}, 3);
  EXPECT_EQ(Sent<ChainRefill>(Receive(ChainResume{6, 3, 2, 4})).size(), 1U);
  EXPECT_EQ(Sent<ChainRefill>(Receive(ChainResume{6, 3, 4, 5})).size(), 1U) << "longer than ours";
  EXPECT_EQ(Sent<ChainEntries>(Receive(ChainResume{6, 3, 2, 5})).size(), 1U);
}

TEST_F(ChainMemberTest, AJoinerThatIsTheTailActsOnlyWhenItHasWhatItsPredecessorHad) {
  Configure(5, {1}, 2, true);
  Receive(ChainGrant{5, now_});
  EXPECT_FALSE(member_.acting_tail());
  Entries(5, 1, 0, 2, 3);
  Stored(2);
  EXPECT_FALSE(member_.acting_tail());
  Entries(5, 1, 2, 1, 3);
  Stored(3);
  EXPECT_TRUE(member_.acting_tail());
}

// Not at the next grant, which may be a renewal away.
TEST_F(ChainMemberTest, AReadThatCameBeforeTheLastRecordIsAnsweredWithThatRecord) {
  Configure(5, {1}, 2, true);
  EXPECT_EQ(Count<ChainLookup>(Receive(ChainRead{kClient, 1, "what"})), 0U);
  Entries(5, 1, 0, 2, 2);
  Stored(1);
  EXPECT_EQ(Count<ChainLookup>(Receive(ChainGrant{5, now_})), 0U) << "one record is missing";
  EXPECT_EQ(Count<ChainLookup>(Stored(2)), 1U);
  EXPECT_EQ(Count<ChainLookup>(Receive(ChainGrant{5, now_})), 0U) << "once";
}

TEST_F(ChainMemberTest, OneWhoseStorageForgotWhatItsSuccessorHasSaysSo) {
  Configure(5, {2, 3});
  const std::vector<ChainRenew> said = Sent<ChainRenew>(Receive(ChainResume{5, 3, 7, 4}));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(said[0].lost);
}

TEST_F(ChainMemberTest, AConfigurationForAnotherLifeIsIgnored) {
  Receive(ChainConfigure{{5, {2}, kNoMember, false}, 8});
  EXPECT_EQ(member_.config().epoch, 0U);
}

TEST(ChainSessions, WhatIsFurtherBackThanTheWindowIsTooOld) {
  ChainSessions sessions(4);
  for (std::uint64_t i = 1; i <= 6; ++i) sessions.Add(kClient, i, 100 + i);
  EXPECT_EQ(sessions.Find(kClient, 2), ChainSessions::kTooOld);
  EXPECT_EQ(sessions.Find(kClient, 3), 103U);
  EXPECT_EQ(sessions.Find(kClient, 7), 0U);
  EXPECT_EQ(sessions.Find(Id{2, 2}, 1), 0U);
}

TEST(ChainClient, SendsAgainUnderTheSameNumberInANewConfigurationAndHoldsWhatIsBeyondTheWindow) {
  ChainTimes times;
  times.client_window = 2;
  ChainClient client(kClient, times);
  const auto writes = [](const ChainClientActions& actions) {
    std::vector<std::uint64_t> out;
    for (const auto& action : actions) {
      const auto* send = std::get_if<ChainSend>(&action);
      if (send == nullptr) continue;
      if (const auto* write = std::get_if<ChainWrite>(&send->message)) out.push_back(write->sequence);
    }
    return out;
  };
  ChainClientActions first;
  client.Receive(0, ChainConfigure{{2, {1, 2}, kNoMember, false}, 0}, &first);
  for (int i = 0; i < 3; ++i) client.Write(0, "x", &first);
  EXPECT_EQ(writes(first), (std::vector<std::uint64_t>{1, 2}));
  ChainClientActions second;
  client.Receive(0, ChainConfigure{{3, {2}, kNoMember, false}, 0}, &second);
  EXPECT_EQ(writes(second), (std::vector<std::uint64_t>{1, 2}));
  ChainClientActions third;
  client.Receive(0, ChainWritten{kClient, 1, 7}, &third);
  EXPECT_EQ(writes(third), (std::vector<std::uint64_t>{3}));
}

}  // namespace
}  // namespace manta::rules
