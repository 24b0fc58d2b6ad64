// Arrow batches as bytes and back, with structs made by hand; with pyarrow they are tested in
// python/tests/test_arrow.py.
#include "manta/arrow.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace manta {
namespace {

int g_released = 0;

// Columns "n" (int64, one null) and "s" (utf8).
struct Source {
  std::vector<std::int64_t> numbers{1, 2, 3};
  std::uint8_t valid = 0b101;
  std::vector<std::int32_t> offsets{0, 1, 1, 4};
  std::string text = "abcd";
  const void* number_buffers[2] = {&valid, numbers.data()};
  const void* text_buffers[3] = {nullptr, offsets.data(), text.data()};
  const void* none[1] = {nullptr};
  ArrowArray columns[2]{};
  ArrowArray* column_pointers[2] = {&columns[0], &columns[1]};
  ArrowSchema fields[2]{};
  ArrowSchema* field_pointers[2] = {&fields[0], &fields[1]};

  ArrowBatch Batch() {
    for (ArrowArray& column : columns) {
      column.length = 3;
      column.release = [](ArrowArray* array) { array->release = nullptr; };
    }
    columns[0].null_count = 1;
    columns[0].n_buffers = 2;
    columns[0].buffers = number_buffers;
    columns[1].n_buffers = 3;
    columns[1].buffers = text_buffers;
    const char* formats[] = {"l", "u"};
    const char* names[] = {"n", "s"};
    for (int i = 0; i < 2; ++i) {
      fields[i].format = formats[i];
      fields[i].name = names[i];
      fields[i].flags = ARROW_FLAG_NULLABLE;
      fields[i].release = [](ArrowSchema* schema) { schema->release = nullptr; };
    }
    ArrowSchema schema{};
    schema.format = "+s";
    schema.n_children = 2;
    schema.children = field_pointers;
    schema.release = [](ArrowSchema* one) { one->release = nullptr; };
    ArrowArray array{};
    array.length = 3;
    array.n_buffers = 1;
    array.buffers = none;
    array.n_children = 2;
    array.children = column_pointers;
    array.release = [](ArrowArray* one) {
      ++g_released;
      one->release = nullptr;
    };
    return ArrowBatch(&schema, &array);
  }
};

std::shared_ptr<Array<std::byte>> Written(const ArrowBatch& batch) {
  std::vector<std::byte> bytes(EncodedSize(batch));
  Encode(batch, bytes);
  return std::make_shared<Array<std::byte>>(std::span<const std::byte>(bytes));
}

TEST(Arrow, ABatchIsReadInPlace) {
  g_released = 0;
  Source source;
  std::shared_ptr<Array<std::byte>> bytes;
  {
    const ArrowBatch batch = source.Batch();
    bytes = Written(batch);
  }
  EXPECT_EQ(g_released, 1);
  const auto read = Decode<ArrowBatch>(bytes->span(), KeepAlive(bytes));
  ASSERT_EQ(read.rows(), 3);
  EXPECT_STREQ(read.schema().children[1]->name, "s");
  const ArrowArray& numbers = *read.array().children[0];
  EXPECT_EQ(numbers.null_count, 1);
  EXPECT_EQ(static_cast<const std::int64_t*>(numbers.buffers[1])[2], 3);
  const auto* at = static_cast<const std::byte*>(numbers.buffers[1]);
  EXPECT_TRUE(at >= bytes->begin() && at < bytes->end());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % 64, 0U);
  EXPECT_EQ(std::memcmp(read.array().children[1]->buffers[2], "abcd", 4), 0);
}

TEST(Arrow, WhatWasExportedOutlivesTheBatchAndItsChildrenMayBeMovedOut) {
  Source source;
  ArrowSchema schema{};
  ArrowArray array{};
  {
    const std::shared_ptr<Array<std::byte>> bytes = Written(source.Batch());
    Decode<ArrowBatch>(bytes->span(), KeepAlive(bytes)).Export(&schema, &array);
  }
  ArrowArray column = *array.children[0];  // as an importer takes it
  array.children[0]->release = nullptr;
  array.release(&array);
  EXPECT_EQ(static_cast<const std::int64_t*>(column.buffers[1])[0], 1);
  column.release(&column);
  EXPECT_EQ(array.release, nullptr);
  schema.release(&schema);
}

TEST(Arrow, ABatchInsideAnotherValueIsRefused) {
  Source source;
  const std::pair<int, ArrowBatch> pair{1, source.Batch()};
  EXPECT_THROW((void)EncodedSize(pair), InvalidError);
  EXPECT_THROW((void)EncodedSize(ArrowBatch()), InvalidError);
}

TEST(Arrow, BytesThatMakeNoSenseThrowAndNothingElse) {
  Source source;
  const std::shared_ptr<Array<std::byte>> good = Written(source.Batch());
  std::mt19937 dice(7);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = good->to_vector();
    for (int i = 0; i < 2; ++i)
      bytes[dice() % std::min<std::size_t>(bytes.size(), 300)] = static_cast<std::byte>(dice());
    bytes.resize(dice() % (bytes.size() + 1));
    try {
      (void)Decode<ArrowBatch>(bytes);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace manta
