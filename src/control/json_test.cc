#include "control/json.h"

#include <gtest/gtest.h>

namespace manta::control {
namespace {

TEST(Json, APathIsFollowedToItsValue) {
  const Result<Json> json = Json::Parse(
      R"( {"header":{"revision":"12"},"succeeded":true,"kvs":[{"value":"aGk="},{"lease":-3.5}], "x":null} )");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& top = json.value();
  EXPECT_EQ(top["header"]["revision"].Number(), 12);
  EXPECT_TRUE(top["succeeded"].truth);
  EXPECT_EQ(top["kvs"][std::size_t{0}]["value"].text, "aGk=");
  EXPECT_EQ(top["kvs"][std::size_t{1}]["lease"].Number(), -3);
  EXPECT_TRUE(top["x"].null());
}

TEST(Json, WhatIsNotThereIsNull) {
  const Result<Json> json = Json::Parse("{}");
  ASSERT_TRUE(json.ok());
  EXPECT_TRUE(json.value()["a"]["b"][std::size_t{3}].null());
  EXPECT_EQ(json.value()["a"].Number(), 0);
  EXPECT_FALSE(json.value()["a"].truth);
}

TEST(Json, EscapesAreRead) {
  const Result<Json> json = Json::Parse(R"("a\"b\\c\nd\u0041\u20ac")");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json.value().text, "a\"b\\c\ndA?");
}

TEST(Json, WhatIsNoneIsRefused) {
  for (const char* text : {"", "{", "{\"a\"}", "[1,", "\"a", "\"\\u12\"", "{} x", "nul", "{\"a\":1,}", "\"\\q\""}) {
    EXPECT_EQ(Json::Parse(text).status().code(), Code::kCorrupt) << text;
  }
  EXPECT_FALSE(Json::Parse(std::string(100'000, '[')).ok()) << "too deep";
}

}  // namespace
}  // namespace manta::control
