#include "owner/daemon_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>

namespace manta::owner {
namespace {

using namespace std::chrono_literals;

// A DaemonLink whose daemon is the test: it reads frames and answers when and as it likes.
class DaemonLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const timeval patience{20, 0};  // a test that hangs says nothing
    setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    daemon_.Reset(ends[1]);
    link_ = std::make_unique<DaemonLink>(base::Fd(ends[0]));
    link_->Start([this](wire::Frame& frame) { messages_.push_back(frame.kind); },
                 [this](const std::string& why) { lost_.set_value(why); });
  }
  // Stopping is not losing: on_lost would then set its value twice.
  void TearDown() override { link_.reset(); }

  // The next frame of the link; of kind kFailed and call 0 if it closed.
  wire::Frame Heard() {
    wire::Frame frame;
    for (;;) {
      Result<bool> whole = reader_.Next(&frame);
      EXPECT_TRUE(whole.ok()) << whole.status().message();
      if (!whole.ok() || *whole) return frame;
      std::vector<std::byte> buffer(4096);
      std::size_t count = 0;
      std::vector<base::Fd> fds;
      bool would_block = false;
      const Status status = wire::Receive(daemon_.get(), buffer, &count, &fds, &would_block);
      if (!status.ok() || would_block || count == 0) return wire::Frame();
      reader_.Add(std::span(buffer).first(count), std::move(fds));
    }
  }
  void Say(const std::string& bytes, const std::vector<int>& fds = {}) {
    EXPECT_TRUE(wire::SendAll(daemon_.get(), std::as_bytes(std::span(bytes)), fds).ok());
  }
  void Lend(std::uint64_t call, std::uint32_t segment) {
    Say(wire::EncodeFrame(wire::SegmentLent{segment, 1, false}, call));
  }
  // A call on a thread of its own.
  std::future<Result<wire::SegmentLent>> Ask(std::uint64_t bytes, std::int64_t timeout_us = -1) {
    return std::async(std::launch::async, [this, bytes, timeout_us] {
      return link_->Call<wire::SegmentLent>(wire::SegmentRequest{bytes}, {}, nullptr, timeout_us);
    });
  }

  base::Fd daemon_;
  wire::FrameReader reader_;
  std::vector<wire::Kind> messages_;
  std::promise<std::string> lost_;
  std::unique_ptr<DaemonLink> link_;
};

TEST_F(DaemonLinkTest, AnswersOutOfOrderReachTheirCallers) {
  std::vector<std::future<Result<wire::SegmentLent>>> calls;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> heard;
  for (std::uint32_t i = 0; i < 8; ++i) calls.push_back(Ask(i));
  for (std::uint32_t i = 0; i < 8; ++i) {
    const wire::Frame frame = Heard();
    heard.emplace_back(frame.call, static_cast<std::uint32_t>(frame.As<wire::SegmentRequest>()->bytes));
  }
  for (auto it = heard.rbegin(); it != heard.rend(); ++it) Lend(it->first, 100 + it->second);
  for (std::uint32_t i = 0; i < 8; ++i) {
    Result<wire::SegmentLent> lent = calls[i].get();
    ASSERT_TRUE(lent.ok()) << lent.status().message();
    EXPECT_EQ(lent->segment, 100 + i);
  }
}

TEST_F(DaemonLinkTest, ACallTimesOutAndItsLateAnswerDisturbsNobody) {
  Result<wire::SegmentLent> lent = Ask(1, 1000).get();
  EXPECT_EQ(lent.status().code(), Code::kTimedOut);
  const std::uint64_t late = Heard().call;
  auto next = Ask(2);
  const std::uint64_t call = Heard().call;
  EXPECT_NE(call, late);
  Lend(late, 1);
  Lend(call, 2);
  EXPECT_EQ(next.get()->segment, 2U);
  EXPECT_FALSE(link_->lost());
}

TEST_F(DaemonLinkTest, ADaemonThatClosesInTheMiddleOfACallMakesItUnavailable) {
  auto call = Ask(1);
  EXPECT_EQ(Heard().kind, wire::Kind::kSegmentRequest);
  daemon_.Reset(-1);
  const Status status = call.get().status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("mantad"), std::string::npos) << status.message();
  EXPECT_NE(lost_.get_future().get().find("mantad"), std::string::npos);
  EXPECT_TRUE(link_->lost());
  EXPECT_EQ(link_->Send(wire::Goodbye{}).code(), Code::kUnavailable);
  EXPECT_EQ(Ask(2).get().status().code(), Code::kUnavailable);
}

TEST_F(DaemonLinkTest, GarbageEndsTheCallsAndClosesTheLink) {
  auto call = Ask(1);
  EXPECT_EQ(Heard().kind, wire::Kind::kSegmentRequest);
  Say(std::string(64, 'x'));
  EXPECT_EQ(call.get().status().code(), Code::kUnavailable);
  EXPECT_NE(lost_.get_future().get().find("frame"), std::string::npos);
  std::byte byte{};
  EXPECT_EQ(recv(daemon_.get(), &byte, 1, 0), 0);  // so that the daemon gives up this process, too
}

TEST_F(DaemonLinkTest, AFailureIsTheStatusOfItsCall) {
  auto call = Ask(1);
  Say(wire::EncodeFrame(wire::Failed{Failure{Code::kOutOfMemory, "no room", {}, {}}}, Heard().call));
  const Status status = call.get().status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_EQ(status.message(), "no room");
}

TEST_F(DaemonLinkTest, AnAnswerOfTheWrongKindIsCorruptButTheLinkGoesOn) {
  auto call = Ask(1);
  Say(wire::EncodeFrame(wire::Restored{}, Heard().call));
  EXPECT_EQ(call.get().status().code(), Code::kCorrupt);
  auto next = Ask(2);
  Lend(Heard().call, 3);
  EXPECT_EQ(next.get()->segment, 3U);
}

TEST_F(DaemonLinkTest, DescriptorsArriveInBothDirections) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const base::Fd out(pipes[0]);
  const base::Fd in(pipes[1]);
  auto call = std::async(std::launch::async, [this] { return link_->Request(1); });
  const std::uint64_t asked = Heard().call;
  Say(wire::EncodeFrame(wire::SegmentLent{7, 64, true}, asked, 1), {in.get()});
  Result<store::LentSegment> lent = call.get();
  ASSERT_TRUE(lent.ok()) << lent.status().message();
  EXPECT_EQ(lent->segment, 7U);
  ASSERT_TRUE(lent->fd.valid());
  ASSERT_EQ(write(lent->fd.get(), "!", 1), 1);

  ASSERT_TRUE(link_->Send(wire::Goodbye{}, {out.get()}).ok());
  const wire::Frame frame = Heard();
  ASSERT_EQ(frame.fds.size(), 1U);
  char read_back = 0;
  EXPECT_EQ(read(frame.fds[0].get(), &read_back, 1), 1);
  EXPECT_EQ(read_back, '!');
}

TEST_F(DaemonLinkTest, ALentSegmentWithoutItsDescriptorIsCorrupt) {
  auto call = std::async(std::launch::async, [this] { return link_->Request(1); });
  Lend(Heard().call, 7);
  EXPECT_EQ(call.get().status().code(), Code::kCorrupt);
}

TEST_F(DaemonLinkTest, MessagesGoToTheProcessInTheirOrder) {
  auto call = Ask(1);
  const std::uint64_t asked = Heard().call;
  // In one piece, and the answer last: when it is there, so are the others.
  Say(wire::EncodeFrame(wire::Done{}) + wire::EncodeFrame(wire::Exit{}) +
      wire::EncodeFrame(wire::SegmentLent{}, asked));
  EXPECT_TRUE(call.get().ok());
  EXPECT_EQ(messages_, (std::vector{wire::Kind::kDone, wire::Kind::kExit}));
}

TEST_F(DaemonLinkTest, StoppingEndsCallsAndReportsNoLoss) {
  auto call = Ask(1);
  EXPECT_EQ(Heard().kind, wire::Kind::kSegmentRequest);
  link_->Stop();
  EXPECT_EQ(call.get().status().code(), Code::kUnavailable);
  EXPECT_EQ(lost_.get_future().wait_for(0s), std::future_status::timeout);
}

// Not even the thread that meets the loss as an error goes on: it might tell others of it.
TEST(DaemonLinkOfAWorker, WhoeverSendsToADaemonThatIsGoneEndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) _exit(2);
    DaemonLink link{base::Fd(ends[0])};  // nobody listens on it, so nobody else notices
    link.EndWithDaemon();
    close(ends[1]);
    static_cast<void>(link.Send(wire::SegmentReturn{1}));
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

}  // namespace
}  // namespace manta::owner
