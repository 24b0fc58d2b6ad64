#include "types/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "types/group.h"

namespace manta {
namespace {

using ::testing::HasSubstr;

TEST(Strategy, LabelRulesMatchAsTheySay) {
  const Labels labels{{"zone", "a"}, {"disk", "ssd"}};
  EXPECT_TRUE(Matches(labels, {}));
  EXPECT_TRUE(Matches(labels, {LabelRule::Equals("zone", "a"), LabelRule::In("disk", {"ssd", "nvme"})}));
  EXPECT_FALSE(Matches(labels, {LabelRule::Equals("zone", "a"), LabelRule::Equals("disk", "tape")}));
  EXPECT_FALSE(Matches(labels, {LabelRule::NotIn("zone", {"a", "b"})}));
  EXPECT_TRUE(Matches(labels, {LabelRule::NotIn("rack", {"7"})}));
  EXPECT_TRUE(Matches(labels, {LabelRule::Exists("zone"), LabelRule::Absent("rack")}));
  EXPECT_FALSE(Matches(labels, {LabelRule::Exists("rack")}));
  EXPECT_FALSE(Matches(labels, {LabelRule::Absent("zone")}));
}

TEST(Strategy, NodesAreNamedByNameOrNumber) {
  EXPECT_TRUE(NamesNode("n2", "n2", 7));
  EXPECT_TRUE(NamesNode("7", "n2", 7));
  EXPECT_FALSE(NamesNode("2", "n2", 7));
  EXPECT_FALSE(NamesNode("0", "n1", 0));
}

TEST(Strategy, NonsenseIsRefusedWithWords) {
  Strategy strategy;
  Placement placement;
  placement.labels = {LabelRule::In("zone", {})};
  EXPECT_THAT(ToStrategy(placement, &strategy).message(), HasSubstr("zone"));
  placement = {};
  placement.group = "nonsense";
  EXPECT_EQ(ToStrategy(placement, &strategy).code(), Code::kInvalid);
  placement.group = ToHex(Id{1, 2});
  placement.bundle = -2;
  EXPECT_EQ(ToStrategy(placement, &strategy).code(), Code::kInvalid);
  placement.bundle = 3;
  EXPECT_TRUE(ToStrategy(placement, &strategy).ok());
  EXPECT_EQ(strategy.group, (Id{1, 2}));
  placement.spread = true;
  EXPECT_EQ(ToStrategy(placement, &strategy).code(), Code::kInvalid);
}

TEST(Strategy, SaysWhatWasAsked) {
  Strategy strategy;
  EXPECT_EQ(ToString(strategy), "");
  strategy.node = "n2";
  strategy.labels = {LabelRule::NotIn("zone", {"a", "b"}), LabelRule::Exists("gpu")};
  EXPECT_EQ(ToString(strategy), "on node n2, where zone not in {a, b} and gpu exists");
}

TEST(Strategy, ResourcesOfBundlesAreTheirOwn) {
  Resources cpus;
  cpus.Set("CPU", kUnit);
  const Id group{1, 2};
  const Resources pool = BundlePool(cpus, group, 1);
  EXPECT_TRUE(pool.Covers(InBundle(cpus, group, 1)));
  EXPECT_TRUE(pool.Covers(InBundle(cpus, group, -1)));
  EXPECT_FALSE(pool.Covers(InBundle(cpus, group, 0)));
  EXPECT_FALSE(pool.Covers(InBundle(cpus, Id{2, 2}, 1)));
  EXPECT_TRUE(Plain(pool).empty());
  for (const auto& [name, amount] : InBundle(cpus, group, 1).amounts()) EXPECT_TRUE(IsBundled(name));
  EXPECT_EQ(BaseName(InBundle(cpus, group, -1).amounts().begin()->first), "CPU");
}

}  // namespace
}  // namespace manta
