#include "manta/tune/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tune/search/encoding.h"

namespace manta::tune {
namespace {

std::string ErrorOf(std::vector<Space::Parameter> parameters) {
  try {
    Space space(std::move(parameters));
  } catch (const SpaceError& error) {
    return error.what();
  }
  return "";
}

TEST(Space, AnErrorNamesTheKeyPath) {
  EXPECT_THAT(ErrorOf({{"model/lr", Uniform(2, 1)}}), testing::StartsWith("model/lr: the lower bound of [2, 1]"));
  EXPECT_THAT(ErrorOf({{"a", Uniform(1, 1)}}), testing::StartsWith("a: the range [1, 1] is empty"));
  EXPECT_THAT(ErrorOf({{"a", RandInt(3, 3)}}), testing::HasSubstr("is exclusive"));
  EXPECT_THAT(ErrorOf({{"a", LogUniform(0, 1)}}), testing::StartsWith("a: a logarithmic range must begin above 0"));
  EXPECT_THAT(ErrorOf({{"a", QUniform(0, 1, 2)}}), testing::HasSubstr("q = 2 is larger than the range [0, 1]"));
  EXPECT_THAT(ErrorOf({{"a", Choice({})}}), testing::StartsWith("a: the list of values is empty"));
  EXPECT_THAT(ErrorOf({{"a", RandN(0, 0)}}), testing::HasSubstr("not positive"));
  EXPECT_THAT(ErrorOf({{"a", When("b", {1}, Uniform(0, 1))}, {"b", Choice({1})}}), testing::HasSubstr("Put b first"));
  EXPECT_THAT(ErrorOf({{"a", Uniform(0, 1)}, {"a", Uniform(0, 1)}}), testing::HasSubstr("occurs twice"));
  EXPECT_EQ(ErrorOf({{"a", QRandInt(2, 8, 2)}, {"b", QRandInt(1, 3)}}), "");
}

TEST(Encoding, IntegersExcludeTheUpperBoundUnlessQuantized) {
  Encoding encoding(Space{{"n", RandInt(2, 5)}, {"q", QRandInt(0, 10, 5)}, {"l", LogRandInt(1, 100)}});
  EXPECT_EQ(encoding.Decode(std::vector<double>{0, 0, 0}), (Config{{"n", 2}, {"q", 0}, {"l", 1}}));
  EXPECT_EQ(encoding.Decode(std::vector<double>{1, 1, 1}), (Config{{"n", 4}, {"q", 10}, {"l", 99}}));
}

TEST(Encoding, EncodingIsTheInverseOfDecoding) {
  Encoding encoding(Space{{"a", LogUniform(1e-4, 1)},
                          {"b", QUniform(0, 1, 0.25)},
                          {"c", Choice({"x", "y", "z"})},
                          {"d", RandN(3, 2)},
                          {"e", LogRandInt(1, 1000)},
                          {"f", Constant(true)}});
  for (double u = 0.01; u < 1; u += 0.0731) {
    Config config = encoding.Decode(std::vector<double>(5, u));
    EXPECT_EQ(std::get<bool>(config.at("f")), true);
    std::vector<double> unit = encoding.Encode(config);
    EXPECT_NEAR(unit[0], u, 1e-12);
    EXPECT_NEAR(unit[3], u, 1e-12);
    EXPECT_EQ(encoding.Decode(unit).at("b"), config.at("b"));
    EXPECT_EQ(encoding.Decode(unit).at("c"), config.at("c"));
    EXPECT_EQ(encoding.Decode(unit).at("e"), config.at("e"));
  }
}

TEST(Encoding, AKeyWhoseConditionDoesNotHoldIsAbsent) {
  Encoding encoding(Space{{"kind", Choice({"sgd", "adam"})}, {"momentum", When("kind", {"sgd"}, Uniform(0, 1))}});
  EXPECT_TRUE(encoding.Decode(std::vector<double>{0.1, 0.5}).contains("momentum"));
  Config adam = encoding.Decode(std::vector<double>{0.9, 0.5});
  EXPECT_FALSE(adam.contains("momentum"));
  EXPECT_TRUE(std::isnan(encoding.Encode(adam)[1]));
}

TEST(Encoding, AValueOutsideItsRangeNamesTheKeyPath) {
  Encoding encoding(Space{{"model/lr", Uniform(0, 1)}, {"act", Choice({"relu"})}});
  EXPECT_THROW(encoding.Encode({{"model/lr", 2.0}}), SpaceError);
  EXPECT_THROW(encoding.Encode({{"act", "tanh"}}), SpaceError);
}

}  // namespace
}  // namespace manta::tune
