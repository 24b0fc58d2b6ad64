#include "lineage/recall.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lineage/record.h"

namespace manta::lineage {
namespace {

constexpr ProcessId kBefore = OnNode(1, 5);
constexpr ProcessId kNow = OnNode(1, 9);

std::vector<std::byte> Bytes(const std::vector<std::uint64_t>& words, const char* text) {
  std::vector<std::byte> bytes(3 + words.size() * sizeof(std::uint64_t) + std::strlen(text));
  std::memcpy(bytes.data() + 3, words.data(), words.size() * sizeof(std::uint64_t));  // names lie at any place
  std::memcpy(bytes.data() + 3 + words.size() * sizeof(std::uint64_t), text, std::strlen(text));
  return bytes;
}

Recall::Call Recorded(const std::vector<std::byte>& arguments) {
  Recall::Call call;
  call.owner = kBefore;
  call.arguments = DigestOf(arguments);
  return call;
}

constexpr std::uint64_t kId[] = {0x123456789abcdef0, 0xfedcba9876543210};

TEST(Recall, ARefOfTheDriverIsTheSameInItsNextRun) {
  const Recall::Call call = Recorded(Bytes({kId[0], kId[1], kBefore, kId[1], kId[0], kBefore}, "x"));
  EXPECT_TRUE(Recall::SameArguments(call, Bytes({kId[0], kId[1], kNow, kId[1], kId[0], kNow}, "x"), kNow));
  EXPECT_FALSE(Recall::SameArguments(call, Bytes({kId[0], kId[1], kNow, kId[1], kId[0], kNow}, "y"), kNow));
  EXPECT_FALSE(Recall::SameArguments(call, Bytes({kId[0], kId[0], kNow, kId[1], kId[0], kNow}, "x"), kNow));
  EXPECT_FALSE(Recall::SameArguments(call, Bytes({kId[0], kId[1], kNow + 1, kId[1], kId[0], kNow}, "x"), kNow));
}

TEST(Recall, NumbersThatLookLikeAProcessAreLeftAlone) {
  const Recall::Call call = Recorded(Bytes({kId[0], kId[1], kBefore, 7, kNow}, ""));
  EXPECT_TRUE(Recall::SameArguments(call, Bytes({kId[0], kId[1], kNow, 7, kNow}, ""), kNow));
  EXPECT_FALSE(Recall::SameArguments(call, Bytes({kId[0], kId[1], kNow, 7, kBefore}, ""), kNow));
}

TEST(Recall, ArgumentsWithoutRefsAreComparedAsTheyAre) {
  const Recall::Call call = Recorded(Bytes({1, 2, 3}, "text"));
  EXPECT_TRUE(Recall::SameArguments(call, Bytes({1, 2, 3}, "text"), kNow));
  EXPECT_FALSE(Recall::SameArguments(call, Bytes({1, 2, 4}, "text"), kNow));
}

}  // namespace
}  // namespace manta::lineage
