#include "control/http_call.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

// The body, however the bytes arrive; "!" and the message for what is no answer.
std::string Read(const std::string& bytes, std::size_t piece, bool closed) {
  HttpReply reply;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (const Status status = reply.Add(std::string_view(bytes).substr(at, piece)); !status.ok()) {
      return "!" + status.message();
    }
  }
  if (closed) {
    if (const Status status = reply.End(); !status.ok()) return "!" + status.message();
  }
  if (!reply.complete()) return "!not complete";
  return std::to_string(reply.status()) + " " + reply.body();
}

TEST(HttpReply, IsReadHoweverItsLengthIsToldAndInWhateverPieces) {
  const std::string sized = "HTTP/1.1 200 OK\r\nContent-LENGTH: 5\r\nX: y\r\n\r\nhello";
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
  const std::string open = "HTTP/1.0 404 Not Found\r\n\r\nhello";
  for (const std::size_t piece : {1U, 2U, 7U, 1000U}) {
    EXPECT_EQ(Read(sized, piece, false), "200 hello");
    EXPECT_EQ(Read(chunked, piece, false), "200 hello");
    EXPECT_EQ(Read(open, piece, true), "404 hello");
  }
}

TEST(HttpReply, WhatIsCutOffOrNoHttpIsRefused) {
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", 100, true)[0], '!');
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", 100, true)[0], '!');
  EXPECT_EQ(Read("SSH-2.0-OpenSSH_9.2\r\n\r\n", 100, true)[0], '!');
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 100, true)[0], '!');
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 100, true)[0], '!');
  EXPECT_EQ(Read(std::string(100'000, 'x'), 1'000, true)[0], '!');
}

TEST(HttpCall, NobodyThereIsAnErrorAndNotAHang) {
  std::unique_ptr<base::Loop> loop = std::move(*base::Loop::Create());
  const Result<std::vector<wire::SocketAddress>> address = wire::Resolve({"127.0.0.1", 1});
  ASSERT_TRUE(address.ok());
  std::optional<Status> answer;
  const HttpCall call(*loop, address.value()[0], "nobody", "/", "", 5'000'000,
                      [&](const Result<HttpReply>& reply) { answer = reply.status(); });
  ASSERT_TRUE(RunUntil(*loop, [&] { return answer.has_value(); }));
  EXPECT_EQ(answer->code(), Code::kUnavailable);
}

}  // namespace
}  // namespace manta::control
