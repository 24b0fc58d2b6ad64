#include "base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace manta::base {
namespace {

TEST(Digest, EveryByteAndTheLengthCount) {
  for (const std::size_t size : {1U, 7U, 8U, 63U, 64U, 65U, 200U}) {
    std::vector<std::byte> bytes(size);
    std::set<std::uint64_t> seen{DigestBytes(bytes)};
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = std::byte{1};
      seen.insert(DigestBytes(bytes));
      bytes[i] = std::byte{0};
    }
    EXPECT_EQ(seen.size(), size + 1) << size;
    EXPECT_EQ(DigestBytes(bytes), DigestBytes(std::vector<std::byte>(size)));
    EXPECT_NE(DigestBytes(bytes), DigestBytes(std::vector<std::byte>(size + 1)));
  }
}

TEST(Digest, WhatComesBeforeCounts) {
  const std::vector<std::byte> bytes(100);
  EXPECT_NE(DigestBytes(bytes, 1), DigestBytes(bytes, 2));
  EXPECT_NE(DigestBytes({}, 1), DigestBytes({}, 2));
}

}  // namespace
}  // namespace manta::base
