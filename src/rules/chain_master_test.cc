#include "rules/chain_master.h"

#include <gtest/gtest.h>

namespace manta::rules {
namespace {

class ChainMasterTest : public testing::Test {
 protected:
  // Saves what is to be saved at once.
  ChainMasterActions Run(ChainMasterActions actions) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (const auto* save = std::get_if<ChainSave>(&actions[i])) {
        const std::uint64_t epoch = save->config.epoch;
        ChainMasterActions more;
        master_.Saved(now_, epoch, &more);
        actions.insert(actions.end(), more.begin(), more.end());
      }
    }
    return actions;
  }
  ChainMasterActions Renew(MemberId member, std::uint64_t epoch, std::uint64_t position = 0, bool synced = false,
                           std::uint64_t incarnation = 1) {
    ChainMasterActions actions;
    ChainRenew renew;
    renew.member = member;
    renew.incarnation = incarnation;
    renew.epoch = epoch;
    renew.sent_us = ++now_;
    renew.position = position;
    renew.synced = synced;
    master_.Receive(now_, renew, &actions);
    return Run(std::move(actions));
  }
  ChainMasterActions Gone(MemberId member, bool certain) {
    ChainMasterActions actions;
    master_.Gone(now_, member, 1, certain, &actions);
    return Run(std::move(actions));
  }
  [[nodiscard]] std::uint64_t epoch() const { return master_.config().epoch; }
  [[nodiscard]] std::vector<MemberId> members() const { return master_.config().members; }
  static std::size_t Grants(const ChainMasterActions& actions) {
    std::size_t count = 0;
    for (const auto& action : actions) {
      const auto* send = std::get_if<ChainSend>(&action);
      if (send != nullptr && std::holds_alternative<ChainGrant>(send->message)) ++count;
    }
    return count;
  }
  // All of them full members, each following the present configuration.
  void Build(MemberId count) {
    Renew(1, 0);
    Renew(1, epoch());
    for (MemberId joiner = 2; joiner <= count; ++joiner) {
      Renew(joiner, 0);
      for (int round = 0; round < 4 && members().size() < joiner; ++round) {
        for (MemberId member = 1; member <= joiner; ++member) Renew(member, epoch(), 5, true);
      }
      ASSERT_EQ(members().size(), joiner);
    }
    for (MemberId member = 1; member <= count; ++member) Renew(member, epoch(), 5, true);
  }

  ChainTimes times_;
  std::int64_t now_ = 1'000'000'000;
  ChainMaster master_{now_, ChainConfig{kCopiedEpoch, {1}, kNoMember, false}, times_};
};

TEST_F(ChainMasterTest, MembersJoinOneAfterTheOtherAtTheEnd) {
  Build(3);
  EXPECT_EQ(members(), (std::vector<MemberId>{1, 2, 3}));
  EXPECT_EQ(master_.config().joiner, kNoMember);
}

// Or the first one, which is empty, would be counted on for a copy that it never had.
TEST_F(ChainMasterTest, NobodyJoinsBeforeTheFirstHasSpoken) {
  Renew(2, 0);
  Renew(3, 0);
  EXPECT_EQ(epoch(), kCopiedEpoch);
  now_ += 10 * times_.silent_us;  // however long that takes
  Renew(2, 0);
  EXPECT_EQ(epoch(), kCopiedEpoch);
  EXPECT_EQ(master_.config().joiner, kNoMember);
  Renew(1, 0);
  EXPECT_GT(epoch(), kCopiedEpoch);
  EXPECT_EQ(members(), std::vector<MemberId>{1});
  Renew(1, epoch());
  Renew(2, 0);
  EXPECT_EQ(master_.config().joiner, 2U);
}

TEST_F(ChainMasterTest, NothingIsToldBeforeItIsSaved) {
  ChainMasterActions actions;
  ChainRenew renew;
  renew.member = 1;
  renew.incarnation = 1;
  renew.sent_us = now_;
  master_.Receive(now_, renew, &actions);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ChainSave>(actions[0]));
  EXPECT_EQ(epoch(), kCopiedEpoch);
}

TEST_F(ChainMasterTest, TheDeadGoButNeverTheLast) {
  Build(3);
  Gone(1, true);
  EXPECT_EQ(members(), (std::vector<MemberId>{2, 3}));
  Gone(3, true);
  EXPECT_EQ(members(), (std::vector<MemberId>{2}));
  Gone(2, true);
  EXPECT_EQ(members(), (std::vector<MemberId>{2}));
  Renew(3, 0, 9, false, 2);
  EXPECT_EQ(members(), (std::vector<MemberId>{2})) << "one that was put out may lack something";
  const std::uint64_t before = epoch();
  Renew(2, 0, 9, false, 2);
  EXPECT_GT(epoch(), before) << "it takes its place again, in a new epoch";
}

TEST_F(ChainMasterTest, AJoinerIsNoMemberBeforeItSaysThatItLacksNothing) {
  Build(2);
  Renew(3, 0);
  ASSERT_EQ(master_.config().joiner, 3U);
  for (int i = 0; i < 3; ++i) {
    Renew(1, epoch(), 500, true);
    Renew(2, epoch(), 500, true);
    Renew(3, epoch(), 5, true);
  }
  EXPECT_EQ(members().size(), 2U);
  EXPECT_FALSE(master_.config().switching) << "it is far behind";
  Renew(3, epoch(), 499, true);
  EXPECT_TRUE(master_.config().switching);
  Renew(3, epoch(), 499, false);
  EXPECT_EQ(members().size(), 2U);
  Gone(2, true);
  EXPECT_EQ(members(), (std::vector<MemberId>{1}));
  EXPECT_FALSE(master_.config().switching) << "it had what member 2 had, not what member 1 has";
}

TEST_F(ChainMasterTest, ANewTailGetsNoLeaseWhileTheOldOnesMayBeGood) {
  Build(2);
  now_ += times_.lease_us + times_.drift_us;
  ASSERT_EQ(Grants(Renew(2, epoch(), 5, true)), 1U);
  Gone(2, false);
  ASSERT_EQ(members(), (std::vector<MemberId>{1}));
  EXPECT_EQ(Grants(Renew(1, epoch(), 5, true)), 0U);
  now_ += times_.lease_us + times_.drift_us;
  EXPECT_EQ(Grants(Renew(1, epoch(), 5, true)), 1U);
}

TEST_F(ChainMasterTest, ATailThatIsSurelyDeadIsNotWaitedFor) {
  Build(2);
  now_ += times_.lease_us + times_.drift_us;
  ASSERT_EQ(Grants(Renew(2, epoch(), 5, true)), 1U);
  Gone(2, true);
  EXPECT_EQ(Grants(Renew(1, epoch(), 5, true)), 1U);
}

TEST_F(ChainMasterTest, AMemberThatFollowsALaterEpochShowsThatOurConfigurationIsOld) {
  Renew(1, epoch() + 7);
  EXPECT_TRUE(master_.outdated());
}

}  // namespace
}  // namespace manta::rules
