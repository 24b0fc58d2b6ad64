#include "sim/history.h"

#include <gtest/gtest.h>

#include "sim/random.h"

namespace manta::sim {
namespace {

using Kind = Operation::Kind;

// One line per operation: who, what, from, to; to 0: unknown.
struct Line {
  Kind kind;
  std::uint64_t value;
  std::int64_t from;
  std::int64_t to;
  std::uint64_t expected = 0;
  bool applied = true;
};
bool Linear(const std::vector<Line>& lines) {
  History history;
  for (const Line& line : lines) {
    const std::size_t one = history.Invoke(0, 0, line.kind, line.value, line.from, line.expected);
    if (line.to != 0) history.Ok(one, line.to, line.value, line.applied);
  }
  return !CheckLinearizable(history.operations());
}

TEST(History, ReadsThatFollowWritesAreLinearizable) {
  EXPECT_TRUE(Linear({}));
  EXPECT_TRUE(Linear({{Kind::kRead, 0, 1, 2}, {Kind::kWrite, 5, 3, 4}, {Kind::kRead, 5, 5, 6}}));
}

TEST(History, AReadOfAnOverwrittenValueIsNot) {
  EXPECT_FALSE(Linear({{Kind::kWrite, 5, 1, 2}, {Kind::kWrite, 6, 3, 4}, {Kind::kRead, 5, 5, 6}}));
  EXPECT_FALSE(Linear({{Kind::kWrite, 5, 1, 2}, {Kind::kRead, 0, 3, 4}}));
}

TEST(History, AReadDuringAWriteMaySeeEitherValueButNotGoBack) {
  EXPECT_TRUE(Linear({{Kind::kWrite, 5, 1, 10}, {Kind::kRead, 0, 2, 3}, {Kind::kRead, 5, 4, 5}}));
  EXPECT_TRUE(Linear({{Kind::kWrite, 5, 1, 10}, {Kind::kRead, 5, 2, 3}, {Kind::kRead, 5, 4, 5}}));
  EXPECT_FALSE(Linear({{Kind::kWrite, 5, 1, 10}, {Kind::kRead, 5, 2, 3}, {Kind::kRead, 0, 4, 5}}));
}

TEST(History, AnUnknownWriteMayTakeEffectLateOrNeverButOnce) {
  EXPECT_TRUE(Linear({{Kind::kWrite, 5, 1, 0}, {Kind::kRead, 0, 100, 101}}));
  EXPECT_TRUE(Linear({{Kind::kWrite, 5, 1, 0}, {Kind::kRead, 0, 100, 101}, {Kind::kRead, 5, 200, 201}}));
  EXPECT_FALSE(Linear(
      {{Kind::kWrite, 5, 1, 0}, {Kind::kRead, 5, 100, 101}, {Kind::kWrite, 6, 110, 111}, {Kind::kRead, 5, 200, 201}}));
  EXPECT_FALSE(Linear({{Kind::kRead, 5, 1, 2}, {Kind::kWrite, 5, 3, 0}})) << "not before it was asked for";
}

TEST(History, AValueNobodyWroteIsNot) { EXPECT_FALSE(Linear({{Kind::kRead, 7, 1, 2}})); }

TEST(History, AWriteAppliedTwiceIsNot) {
  EXPECT_FALSE(Linear({{Kind::kWrite, 1, 1, 10},
                       {Kind::kRead, 1, 2, 3},
                       {Kind::kWrite, 2, 4, 5},
                       {Kind::kRead, 2, 6, 7},
                       {Kind::kRead, 1, 8, 9}}));
}

TEST(History, ConcurrentWritesMayBeSeenInEitherOrderButByAllInTheSame) {
  const std::vector<Line> both = {{Kind::kWrite, 1, 1, 4}, {Kind::kWrite, 2, 1, 4}};
  for (const std::uint64_t last : {1, 2}) {
    std::vector<Line> lines = both;
    lines.push_back({Kind::kRead, last, 5, 6});
    EXPECT_TRUE(Linear(lines));
    lines.push_back({Kind::kRead, 3 - last, 7, 8});
    EXPECT_FALSE(Linear(lines));
  }
}

TEST(History, OfTwoCompareAndSetsFromTheSameValueOneIsApplied) {
  EXPECT_TRUE(Linear({{Kind::kCompareAndSet, 1, 1, 9, 0, true}, {Kind::kCompareAndSet, 2, 1, 9, 0, false}}));
  EXPECT_FALSE(Linear({{Kind::kCompareAndSet, 1, 1, 9, 0, true}, {Kind::kCompareAndSet, 2, 1, 9, 0, true}}));
  EXPECT_FALSE(Linear({{Kind::kCompareAndSet, 1, 1, 9, 0, false}, {Kind::kCompareAndSet, 2, 1, 9, 0, false}}));
}

TEST(History, KeysAreApartAndFailedOperationsHadNoEffect) {
  History history;
  history.Ok(history.Invoke(0, 1, Kind::kWrite, 5, 1), 2);
  history.Ok(history.Invoke(0, 2, Kind::kRead, 0, 3), 4, 0);
  history.Failed(history.Invoke(0, 2, Kind::kWrite, 9, 5), 6);
  history.Ok(history.Invoke(0, 2, Kind::kRead, 0, 7), 8, 0);
  EXPECT_FALSE(CheckLinearizable(history.operations()));
  history.Ok(history.Invoke(0, 2, Kind::kRead, 0, 9), 10, 9);
  const std::optional<std::string> found = CheckLinearizable(history.operations());
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("key 2"), std::string::npos) << *found;
}

// Each operation takes effect at a moment that we know, so there is an order; then one answer is changed.
TEST(History, LongRandomHistoriesOfARealRegisterPassAndOneWrongAnswerIsFound) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    struct Planned {
      std::int64_t from, at, to;
      bool read;
      std::uint64_t value;
    };
    std::vector<Planned> plan;
    for (int client = 0; client < 5; ++client) {
      std::int64_t now = 0;
      for (int i = 0; i < 100; ++i) {
        const std::int64_t from = now + 1 + static_cast<std::int64_t>(random.Below(20));
        const std::int64_t at = from + static_cast<std::int64_t>(random.Below(30));
        const std::int64_t to = at + static_cast<std::int64_t>(random.Below(30));
        plan.push_back({from, at, to, random.Below(2) == 0, plan.size() + 1});
        now = to;
      }
    }
    std::stable_sort(plan.begin(), plan.end(), [](const Planned& a, const Planned& b) { return a.at < b.at; });
    std::uint64_t value = 0;
    std::vector<Line> lines;
    for (const Planned& one : plan) {
      if (!one.read) value = one.value;
      lines.push_back({one.read ? Kind::kRead : Kind::kWrite, value, one.from, one.to});
    }
    ASSERT_TRUE(Linear(lines)) << seed;
    for (std::size_t i = lines.size() - 1;; --i) {
      if (lines[i].kind != Kind::kRead) continue;
      lines[i].value = plan[0].value + 100'000;
      break;
    }
    ASSERT_FALSE(Linear(lines)) << seed;
  }
}

}  // namespace
}  // namespace manta::sim
