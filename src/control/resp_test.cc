#include "control/resp.h"

#include <gtest/gtest.h>

namespace manta::control {
namespace {

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Resp, CommandsAreArraysOfStrings) {
  std::string out;
  AppendCommand(&out, {"SET", "k", std::string_view("\r\n\0", 3)});
  EXPECT_EQ(out, std::string("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\r\n\0\r\n", 29));
}

TEST(Resp, RepliesOfEveryTypeAreReadInAnyPieces) {
  const std::string text =
      "+OK\r\n-ERR no\r\n:-7\r\n$5\r\nab\r\nc\r\n$-1\r\n*3\r\n:1\r\n*1\r\n+x\r\n$0\r\n\r\n*-1\r\n*0\r\n";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    RespParser parser;
    std::vector<RespReply> replies;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      parser.Add(AsBytes(std::string_view(text).substr(at, piece)));
      RespReply reply;
      while (*parser.Next(&reply)) replies.push_back(reply);
    }
    ASSERT_EQ(replies.size(), 8U) << piece;
    EXPECT_EQ(replies[0].text, "OK");
    EXPECT_TRUE(replies[1].is_error());
    EXPECT_EQ(replies[2].number, -7);
    EXPECT_EQ(replies[3].text, "ab\r\nc");
    EXPECT_TRUE(replies[4].is_null());
    ASSERT_EQ(replies[5].items.size(), 3U);
    EXPECT_EQ(replies[5].items[1].items[0].text, "x");
    EXPECT_EQ(replies[5].items[2].type, RespReply::Type::kBytes);
    EXPECT_TRUE(replies[6].is_null());
    EXPECT_EQ(replies[7].type, RespReply::Type::kArray);
  }
}

TEST(Resp, WhatIsNoReplyIsRefused) {
  for (const char* text : {"HTTP/1.1 200 OK\r\n", "\r\n", ":x\r\n", "$-2\r\n", "$99999999999\r\n", "*99999999\r\n",
                           "$1\r\nab\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"}) {
    RespParser parser;
    parser.Add(AsBytes(text));
    RespReply reply;
    EXPECT_EQ(parser.Next(&reply).status().code(), Code::kCorrupt) << text;
  }
  RespParser parser;
  parser.Add(AsBytes(std::string(RespParser::kMaxLine + 1, '+')));
  RespReply reply;
  EXPECT_EQ(parser.Next(&reply).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace manta::control
