#include "rules/actor_names.h"

#include <gtest/gtest.h>

namespace manta::rules {
namespace {

const ActorNames::Name kBank{"default", "bank"};
constexpr Id kFirst{1, 1};
constexpr Id kSecond{2, 1};

TEST(ActorNames, TheFirstWhoClaimsANameHasIt) {
  ActorNames names;
  EXPECT_EQ(names.Find(kBank), nullptr);
  EXPECT_EQ(names.Claim(kBank, {kFirst, 1, "Bank"}).actor, kFirst);
  EXPECT_EQ(names.Claim(kBank, {kSecond, 2, "Bank"}).actor, kFirst);
  EXPECT_EQ(names.Claim(kBank, {kFirst, 1, "Bank"}).actor, kFirst) << "the same claim again";
  EXPECT_EQ(names.Find(kBank)->home, 1U);
}

TEST(ActorNames, ANamespaceIsAnotherSetOfNames) {
  ActorNames names;
  EXPECT_EQ(names.Claim(kBank, {kFirst, 1, ""}).actor, kFirst);
  EXPECT_EQ(names.Claim({"other", "bank"}, {kSecond, 1, ""}).actor, kSecond);
}

TEST(ActorNames, OnlyItsActorGivesANameBack) {
  ActorNames names;
  EXPECT_EQ(names.Claim(kBank, {kFirst, 1, ""}).actor, kFirst);
  EXPECT_FALSE(names.Release(kBank, kSecond)) << "the word of a former bearer may come late";
  EXPECT_TRUE(names.Release(kBank, kFirst));
  EXPECT_EQ(names.Claim(kBank, {kSecond, 2, ""}).actor, kSecond);
}

TEST(ActorNames, NamesOfANodeThatIsGoneAreFree) {
  ActorNames names;
  EXPECT_EQ(names.Claim(kBank, {kFirst, 1, ""}).actor, kFirst);
  EXPECT_EQ(names.Claim({"default", "other"}, {kSecond, 2, ""}).actor, kSecond);
  EXPECT_EQ(names.NodeGone(1), std::vector<ActorNames::Name>{kBank});
  EXPECT_EQ(names.Find(kBank), nullptr);
  EXPECT_NE(names.Find({"default", "other"}), nullptr);
}

TEST(ActorNames, AnActorThatHasAnotherHomeKeepsItsName) {
  ActorNames names;
  EXPECT_EQ(names.Claim(kBank, {kFirst, 1, ""}).actor, kFirst);
  EXPECT_EQ(names.Claim({"default", "other"}, {kSecond, 1, ""}).actor, kSecond);
  const auto stays = [](const Id& actor) { return actor == kFirst; };
  EXPECT_EQ(names.NodeGone(1, stays), (std::vector<ActorNames::Name>{{"default", "other"}}));
  EXPECT_EQ(names.Moved(kFirst, 2), std::vector<ActorNames::Name>{kBank});
  EXPECT_EQ(names.Find(kBank)->home, 2U);
  EXPECT_TRUE(names.NodeGone(1).empty());
}

}  // namespace
}  // namespace manta::rules
