#include "wire/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>

#include "wire/cluster_messages.h"
#include "wire/link_fixture.h"

namespace manta::wire {
namespace {

class ConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*base::Loop::Create());
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    far_.Reset(pair[1]);
    connection_ = std::make_unique<Connection>(
        *loop_, base::Fd(pair[0]), [this](Frame& frame) { frames_.push_back(std::move(frame)); },
        [this](const Status& why) {
          closed_ = why;
          connection_.reset();
        });
    ASSERT_TRUE(connection_->Start().ok());
  }
  void RunSome() {
    for (int i = 0; i < 10; ++i) loop_->RunOnce(0);
  }
  void SendFrom(const std::string& bytes) const {
    ASSERT_TRUE(SendAll(far_.get(), std::as_bytes(std::span(bytes)), {}).ok());
  }

  std::unique_ptr<base::Loop> loop_;
  base::Fd far_;
  std::unique_ptr<Connection> connection_;
  std::vector<Frame> frames_;
  std::optional<Status> closed_;
};

TEST_F(ConnectionTest, FramesArriveWholeHoweverTheyWereCut) {
  const std::string bytes = EncodeFrame(LeaseCancel{7}, 3);
  for (const char byte : bytes) {
    SendFrom(std::string(1, byte));
    RunSome();
  }
  ASSERT_EQ(frames_.size(), 1U);
  EXPECT_EQ(frames_[0].As<LeaseCancel>().value().request, 7U);
}

TEST_F(ConnectionTest, APeerThatDoesNotReadIsDroppedAtTheLimitAndNeverWaitedFor) {
  ObjectReady big;
  big.outcome.bytes.assign(8U << 20, 'x');
  for (int i = 0; i < 20 && connection_ != nullptr && connection_->open(); ++i) connection_->Send(big);
  RunSome();
  ASSERT_TRUE(closed_.has_value());
  EXPECT_FALSE(closed_->ok());
}

TEST_F(ConnectionTest, WhatDoesNotFitAtOnceIsSentLaterInOrder) {
  ObjectReady big;
  big.outcome.bytes.assign(2U << 20, 'x');
  connection_->Send(big, 1);
  connection_->Send(Done{}, 2);
  EXPECT_GT(connection_->outgoing_bytes(), 0U);
  FrameReader reader;
  std::vector<std::uint64_t> calls;
  while (calls.size() < 2) {
    loop_->RunOnce(0);
    std::vector<std::byte> buffer(64U << 10);
    std::vector<base::Fd> fds;
    std::size_t count = 0;
    bool would_block = false;
    ASSERT_TRUE(Receive(far_.get(), buffer, &count, &fds, &would_block).ok());
    ASSERT_GT(count, 0U);
    reader.Add(std::span(buffer).first(count), std::move(fds));
    Frame frame;
    while (*reader.Next(&frame)) calls.push_back(frame.call);
  }
  EXPECT_EQ(calls, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(ConnectionTest, WhatAPeerSaidBeforeItClosedIsHeard) {
  SendFrom(EncodeFrame(LeaseCancel{1}) + EncodeFrame(LeaseCancel{2}));
  far_.Reset(-1);
  connection_->Send(Done{});  // fails, and must not swallow the words
  RunSome();
  EXPECT_EQ(frames_.size(), 2U);
  ASSERT_TRUE(closed_.has_value());
  EXPECT_TRUE(closed_->ok());
}

TEST_F(ConnectionTest, DescriptorsWithoutMessagesAreNotCollected) {
  const std::string byte = EncodeFrame(LeaseCancel{1}).substr(0, 1);
  const int fds[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int i = 0; i < 10; ++i) {
    // One byte at a time of a frame that never ends.
    const std::string next(1, EncodeFrame(LeaseCancel{1})[static_cast<std::size_t>(i)]);
    if (!SendAll(far_.get(), std::as_bytes(std::span(next)), fds).ok()) break;
    RunSome();
  }
  EXPECT_TRUE(closed_.has_value());
}

TEST_F(ConnectionTest, ALastWordIsSentBeforeTheClose) {
  connection_->Send(Done{}, 9);
  connection_->CloseAfterSending(Status(Code::kInvalid, "go away"));
  RunSome();
  std::array<std::byte, 256> buffer{};
  std::vector<base::Fd> fds;
  std::size_t count = 0;
  bool would_block = false;
  ASSERT_TRUE(Receive(far_.get(), buffer, &count, &fds, &would_block).ok());
  EXPECT_GT(count, 0U);
  ASSERT_TRUE(closed_.has_value());
}

// Over TCP, plain and encrypted: frames in both directions, larger than all buffers between.
class LinkedConnectionTest : public LinkFixture {
 protected:
  void Exchange(bool tls) {
    ListenOptions listen;
    listen.tls = tls;
    Listen(std::move(listen));
    DialOptions dial = Options();
    dial.always_tls = tls;
    Link dialled;
    Link accepted;
    Connect(std::move(dial), &dialled, &accepted);
    std::vector<std::string> got[2];
    bool closed[2] = {false, false};
    std::unique_ptr<Connection> ends[2];
    Link* links[2] = {&dialled, &accepted};
    for (int i = 0; i < 2; ++i) {
      ends[i] = std::make_unique<Connection>(
          *loop_, std::move(links[i]->stream),
          [&got, i](Frame& frame) { got[i].push_back(frame.As<ProgramPart>()->bytes); },
          [&closed, i](const Status&) { closed[i] = true; });
      ASSERT_TRUE(ends[i]->Start().ok());
      EXPECT_EQ(ends[i]->encrypted(), tls);
    }
    const std::string large(8U << 20, 'x');
    for (int round = 0; round < 3; ++round) {
      for (const auto& end : ends) {
        end->Send(ProgramPart{0, large});
        end->Send(ProgramPart{0, "small"});
      }
    }
    RunUntil([&] { return got[0].size() == 6 && got[1].size() == 6; });
    for (const std::vector<std::string>& frames : got) {
      EXPECT_EQ(frames[4], large);
      EXPECT_EQ(frames[5], "small");
    }
    ends[0]->Send(ProgramPart{0, large});
    ends[0]->CloseAfterSending({});
    RunUntil([&] { return closed[0] && closed[1]; });
    EXPECT_EQ(got[1].size(), 7U);
  }
};

TEST_F(LinkedConnectionTest, CarriesFramesOverPlainTcp) { Exchange(false); }
TEST_F(LinkedConnectionTest, CarriesFramesOverTls) { Exchange(true); }

}  // namespace
}  // namespace manta::wire
