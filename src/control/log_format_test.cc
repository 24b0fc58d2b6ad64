#include "control/log_format.h"

#include <gtest/gtest.h>

#include <vector>

namespace manta::control {
namespace {

constexpr std::uint64_t kNumber = 3;

Batch BatchOf(std::uint64_t sequence, std::string value) {
  Batch batch;
  batch.epoch = 2;
  batch.sequence = sequence;
  batch.client = Id{7, 8};
  batch.client_sequence = sequence * 10;
  batch.writes.push_back(Write{Table::kNodes, "n" + std::to_string(sequence), std::move(value)});
  batch.writes.push_back(Write{Table::kEvents, "gone", {}});
  return batch;
}

// Three records of different sizes, and where each ends.
std::string ThreeRecords(std::vector<std::size_t>* ends) {
  std::string bytes;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    AppendRecord(&bytes, kNumber, bytes.size(), BatchOf(i, std::string(i * 50, 'v')));
    ends->push_back(bytes.size());
  }
  return bytes;
}

std::size_t CountValid(std::string_view bytes) {
  LogReader reader(std::as_bytes(std::span(bytes)), kNumber, 0);
  std::size_t count = 0;
  while (reader.Next()) ++count;
  return count;
}

TEST(LogFormat, WhatIsWrittenIsReadBack) {
  std::string bytes;
  AppendRecord(&bytes, kNumber, 0, BatchOf(5, "value"));
  LogReader reader(std::as_bytes(std::span(bytes)), kNumber, 0);
  const std::optional<Batch> batch = reader.Next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->sequence, 5U);
  EXPECT_EQ(batch->client, (Id{7, 8}));
  EXPECT_EQ(batch->client_sequence, 50U);
  ASSERT_EQ(batch->writes.size(), 2U);
  EXPECT_EQ(batch->writes[0].value, "value");
  EXPECT_FALSE(batch->writes[1].value.has_value());
  EXPECT_EQ(reader.offset(), bytes.size());
  EXPECT_FALSE(reader.Next().has_value());
}

TEST(LogFormat, ATailTornAtAnyByteLosesOnlyTheTornRecord) {
  std::vector<std::size_t> ends;
  const std::string bytes = ThreeRecords(&ends);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    std::size_t whole = 0;
    while (whole < ends.size() && ends[whole] <= size) ++whole;
    EXPECT_EQ(CountValid(std::string_view(bytes).substr(0, size)), whole) << "cut at " << size;
    // The same with zeros after the cut, as in a file that was written ahead; a cut inside zeros may go unnoticed,
    // rightly.
    std::string padded = bytes.substr(0, size) + std::string(bytes.size() - size, '\0');
    while (whole < ends.size() && padded.compare(0, ends[whole], bytes, 0, ends[whole]) == 0) ++whole;
    EXPECT_EQ(CountValid(padded), whole) << "zeros from " << size;
  }
}

TEST(LogFormat, AnyDamagedByteEndsTheLogBeforeItsRecord) {
  std::vector<std::size_t> ends;
  const std::string bytes = ThreeRecords(&ends);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    std::size_t before = 0;
    while (ends[before] <= at) ++before;
    EXPECT_EQ(CountValid(damaged), before) << "byte " << at;
  }
}

TEST(LogFormat, ARecordInAnotherPlaceIsNone) {
  std::string bytes;
  AppendRecord(&bytes, kNumber, 64, BatchOf(1, "x"));
  EXPECT_TRUE(LogReader(std::as_bytes(std::span(bytes)), kNumber, 64).Next().has_value());
  EXPECT_FALSE(LogReader(std::as_bytes(std::span(bytes)), kNumber, 72).Next().has_value());
  EXPECT_FALSE(LogReader(std::as_bytes(std::span(bytes)), kNumber + 1, 64).Next().has_value());
}

TEST(LogFormat, AHeaderIsOfItsSegmentOnly) {
  const std::string header = EncodeSegmentHeader(4, 99);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(header));
  EXPECT_EQ(DecodeSegmentHeader(bytes, 4).value().durable_before, 99U);
  EXPECT_EQ(DecodeSegmentHeader(bytes, 5).status().code(), Code::kCorrupt);
  EXPECT_EQ(DecodeSegmentHeader(bytes.first(31), 4).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace manta::control
