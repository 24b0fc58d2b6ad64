// What manta/plain.h promises of single values; what spans languages is in python/tests.
#include "manta/plain.h"

#include <gtest/gtest.h>

#include <complex>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "manta/codec.h"
#include "manta/internal/plain_call.h"

namespace manta {
namespace {

template <typename T>
std::vector<std::byte> Bytes(const T& value) {
  const PlainValue<T> plain(value);
  std::vector<std::byte> out(EncodedSize(plain));
  Encode(plain, out);
  return out;
}

template <typename To, typename From>
To Read(const From& value) {
  return Decode<PlainValue<To>>(Bytes(value)).value;
}

template <typename T>
void ComesBack(const T& value) {
  EXPECT_EQ(Read<T>(value), value);
}

TEST(Plain, ValuesComeBackAsTheyWere) {
  ComesBack(true);
  ComesBack(-7);
  ComesBack(std::numeric_limits<std::uint64_t>::max());
  ComesBack(1.5);
  ComesBack(std::string("text \0 ü", 9));
  ComesBack(std::vector<std::string>{"a", "b"});
  ComesBack(std::vector<double>{1, 2, 3});
  ComesBack(std::vector<bool>{true, false});
  ComesBack(std::vector<std::byte>{std::byte{0}, std::byte{255}});
  ComesBack(std::map<std::string, std::vector<int>>{{"x", {1, 2}}, {"y", {}}});
  ComesBack(std::set<int>{1, 5});
  ComesBack(std::tuple<int, std::string, std::optional<double>>{1, "two", std::nullopt});
  ComesBack(std::variant<std::monostate, std::int64_t, std::string>{"s"});
  ComesBack(std::vector<std::complex<float>>{{1, 2}});
  ComesBack(Array<float>{1.5F, 2.5F});
}

TEST(Plain, ReadingConvertsWhereNothingIsLost) {
  EXPECT_EQ(Read<double>(3), 3.0);
  EXPECT_EQ((Read<std::vector<std::int64_t>>(std::vector<std::int32_t>{1, 2})), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ((Read<std::vector<double>>(std::vector<float>{1.5F})), (std::vector<double>{1.5}));
  EXPECT_EQ((Read<std::vector<double>>(std::tuple<int, double>{1, 2.5})), (std::vector<double>{1, 2.5}));
  EXPECT_EQ((Read<std::pair<int, int>>(std::vector<std::optional<int>>{1, 2})), (std::pair<int, int>{1, 2}));
}

TEST(Plain, WhatWouldLoseSomethingThrows) {
  EXPECT_THROW((void)Read<int>(1.5), InvalidError);
  EXPECT_THROW((void)Read<std::int8_t>(300), InvalidError);
  EXPECT_THROW((void)Read<unsigned>(-1), InvalidError);
  EXPECT_THROW((void)Read<std::int64_t>(std::numeric_limits<std::uint64_t>::max()), InvalidError);
  EXPECT_THROW((void)Read<std::vector<float>>(std::vector<double>{1}), InvalidError);
  EXPECT_THROW((void)Read<std::vector<std::int32_t>>(std::vector<std::uint32_t>{1}), InvalidError);
  EXPECT_THROW((void)Read<std::string>(1), InvalidError);
  EXPECT_THROW((void)Read<bool>(1), InvalidError);
  EXPECT_THROW((void)(Read<std::tuple<int, int>>(std::tuple<int>{1})), InvalidError);
}

TEST(Plain, AnArrayIsReadInPlace) {
  const std::vector<std::byte> bytes = Bytes(std::vector<double>(100, 2.5));
  auto aligned = std::make_shared<Array<std::byte>>(std::span<const std::byte>(bytes));
  const auto read = Decode<PlainValue<Array<double>>>(aligned->span(), KeepAlive(aligned));
  EXPECT_GE(reinterpret_cast<const std::byte*>(read->data()), aligned->begin());
  EXPECT_LT(reinterpret_cast<const std::byte*>(read->data()), aligned->end());
  EXPECT_EQ((*read)[99], 2.5);
}

TEST(Plain, ATensorHasAShape) {
  const Tensor<int> matrix{{2, 3}, Array<int>{1, 2, 3, 4, 5, 6}};
  const auto back = Read<Tensor<int>>(matrix);
  EXPECT_EQ(back.shape, matrix.shape);
  EXPECT_EQ(back.values, matrix.values);
  EXPECT_THROW((void)Read<std::vector<int>>(matrix), InvalidError);
  EXPECT_THROW((void)Bytes(Tensor<int>{{7}, Array<int>{1}}), InvalidError);
}

TEST(Plain, BytesThatMakeNoSenseThrowAndNothingElse) {
  using Everything = std::map<std::string, std::vector<std::tuple<int, double, std::optional<std::string>>>>;
  const std::vector<std::byte> good = Bytes(Everything{{"a", {{1, 2.5, "x"}, {3, 4.5, std::nullopt}}}});
  std::mt19937 dice(7);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = good;
    for (int i = 0; i < 3; ++i) bytes[dice() % bytes.size()] = static_cast<std::byte>(dice());
    bytes.resize(dice() % (bytes.size() + 1));
    try {
      (void)Decode<PlainValue<Everything>>(bytes);
      (void)Decode<PlainValue<Tensor<double>>>(bytes);
    } catch (const Error&) {  // corrupt, or of another type
    }
  }
}

TEST(Plain, APickleNeedsPython) {
  const std::vector<std::byte> pickle{static_cast<std::byte>(internal::PlainTag::kPickle), std::byte{0}};
  try {
    (void)Decode<PlainValue<int>>(pickle);
    FAIL();
  } catch (const InvalidError& error) {
    EXPECT_NE(std::string(error.what()).find("pickled by Python"), std::string::npos);
  }
}

struct Closed {
  int inside;
};
static_assert(internal::PlainType<std::vector<std::map<std::string, double>>>());
static_assert(!internal::PlainType<Closed>());
static_assert(!internal::PlainType<std::vector<Closed>>());
static_assert(!internal::PlainType<std::span<const double>>());

TEST(Plain, NamesOfMethodsAreWhatFollowsTheClass) {
  EXPECT_EQ(internal::NthName("&Counter::Add, &Counter::Total", 0), "Add");
  EXPECT_EQ(internal::NthName("&Counter::Add, &Counter::Total", 1), "Total");
}

TEST(Plain, ALibraryThatIsNotThereIsNotFound) {
  EXPECT_THROW(internal::LoadPlainLibrary("/nowhere/libnothing.so"), NotFoundError);
  EXPECT_EQ(internal::FindPlain("/nowhere/libnothing.so", "F"), nullptr);
}

}  // namespace
}  // namespace manta
