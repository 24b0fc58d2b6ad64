#include "node/nodes.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "wire/listener.h"
#include "wire/scratch_folder.h"

namespace manta::node {
namespace {

// Messages are numbers, carried by a kind that fits.
wire::FarJobBegun Number(std::uint64_t number) { return wire::FarJobBegun{Id{number, 1}}; }

struct Side {
  std::unique_ptr<NodeLinks> links;
  std::unique_ptr<wire::Listener> listener;
  std::vector<std::uint64_t> got;
  std::vector<NodeNumber> down;
};

class NodeLinksTest : public testing::Test {
 protected:
  NodeLinksTest() : loop_(std::move(*base::Loop::Create())), secrets_(*wire::Secrets::OpenOrCreate(scratch_ / "s")) {
    for (NodeNumber i = 1; i <= 2; ++i) Open(i);
    Introduce();
  }
  void Open(NodeNumber number) {
    Side& side = sides_[number];
    side.links = std::make_unique<NodeLinks>(*loop_, secrets_);
    side.links->On<wire::FarJobBegun>(
        [&side](NodeNumber, const wire::FarJobBegun& message, std::uint64_t) { side.got.push_back(message.job.hi); });
    side.links->On<wire::DescribeJob>([&side](NodeNumber from, const wire::DescribeJob& message, std::uint64_t call) {
      if (message.job.hi == 0) return side.links->Fail(from, call, Status(Code::kNotFound, "no such job"));
      wire::JobDescribed answer;
      answer.facts.job = message.job;
      side.links->Answer(from, call, answer);
    });
    side.links->WhenDown([&side](NodeNumber node, const Status&) { side.down.push_back(node); });
    side.links->SetSelf(number, 1);
    wire::ListenOptions options;
    options.secrets = secrets_;
    side.listener = std::move(*wire::Listener::Create(
        *loop_, std::move(options), [&side](wire::Link link) { side.links->Accepted(std::move(link)); }));
  }
  void Introduce() {
    sides_[1].links->NodeUp(2, sides_[2].listener->address());
    sides_[2].links->NodeUp(1, sides_[1].listener->address());
  }
  void RunUntil(const std::function<bool()>& done) {
    const std::int64_t deadline = base::NowMicros() + 10'000'000;
    while (!done()) {
      ASSERT_LT(base::NowMicros(), deadline) << "took too long";
      loop_->RunOnce(10'000);
    }
  }

  wire::ScratchFolder scratch_;
  std::unique_ptr<base::Loop> loop_;
  std::shared_ptr<wire::Secrets> secrets_;
  std::map<NodeNumber, Side> sides_;
};

TEST_F(NodeLinksTest, TwoThatDialEachOtherAtOnceEndWithOneConnectionAndAllMessagesInOrder) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 100; ++i) {
    all.push_back(i);
    sides_[1].links->Send(2, Number(i));
    sides_[2].links->Send(1, Number(i));
  }
  RunUntil([&] { return sides_[1].got.size() == 100 && sides_[2].got.size() == 100; });
  EXPECT_EQ(sides_[1].got, all);
  EXPECT_EQ(sides_[2].got, all);
  for (int i = 0; i < 50; ++i) loop_->RunOnce(1000);
  EXPECT_TRUE(sides_[1].links->IsOpen(2));
  EXPECT_TRUE(sides_[2].links->IsOpen(1));
  EXPECT_TRUE(sides_[1].down.empty());
  EXPECT_TRUE(sides_[2].down.empty());
}

TEST_F(NodeLinksTest, CallsOfBothEndsAreAnswered) {
  int right = 0;
  for (const NodeNumber from : {1U, 2U}) {
    const NodeNumber to = 3 - from;
    sides_[from].links->Call<wire::JobDescribed>(to, wire::DescribeJob{Id{from, 1}},
                                                 [&, from](const Result<wire::JobDescribed>& answer) {
                                                   right += answer.ok() && answer.value().facts.job.hi == from ? 1 : 0;
                                                 });
    sides_[from].links->Call<wire::JobDescribed>(
        to, wire::DescribeJob{},
        [&](const Result<wire::JobDescribed>& answer) { right += answer.status().code() == Code::kNotFound ? 1 : 0; });
  }
  RunUntil([&] { return right == 4; });
}

TEST_F(NodeLinksTest, AnEndIsToldToBothAndTheNextMessageBeginsAnew) {
  sides_[2].links->Send(1, Number(1));
  RunUntil([&] { return sides_[1].got.size() == 1; });
  bool failed = false;
  sides_[1].links->Call<wire::JobDescribed>(2, wire::DescribeJob{Id{1, 1}},
                                            [&](const Result<wire::JobDescribed>& answer) { failed = !answer.ok(); });
  sides_[1].links->Close(2, {});
  RunUntil([&] { return !sides_[1].down.empty() && !sides_[2].down.empty(); });
  EXPECT_TRUE(failed);
  EXPECT_EQ(sides_[1].down, std::vector<NodeNumber>{2});
  EXPECT_EQ(sides_[2].down, std::vector<NodeNumber>{1});
  sides_[1].links->Send(2, Number(2));
  RunUntil([&] { return sides_[2].got.size() == 1; });
  EXPECT_EQ(sides_[2].got[0], 2U);
}

TEST_F(NodeLinksTest, AMessageThatNobodyHandlesEndsTheConnection) {
  sides_[1].links->Send(2, wire::FarOwnerGone{1});
  RunUntil([&] { return !sides_[1].down.empty(); });
}

TEST_F(NodeLinksTest, ToAnUnknownOrDeadNodeNothingIsSent) {
  sides_[1].links->Send(9, Number(1));
  RunUntil([&] { return sides_[1].down == std::vector<NodeNumber>{9}; });
  sides_[1].links->NodeDead(2, Status(Code::kUnavailable, "gone"));
  sides_[1].links->Send(2, Number(1));
  RunUntil([&] { return sides_[1].down.size() == 2; });
  // Nor is it let in any more.
  sides_[2].links->Send(1, Number(1));
  for (int i = 0; i < 50; ++i) loop_->RunOnce(1000);
  EXPECT_TRUE(sides_[1].got.empty());
}

TEST_F(NodeLinksTest, WhoCannotBeReachedIsTriedAgainUntilItIsThere) {
  const std::string address = sides_[2].listener->address();
  sides_[2].listener.reset();
  sides_[1].links->Send(2, Number(5));
  for (int i = 0; i < 20; ++i) loop_->RunOnce(1000);
  wire::ListenOptions options;
  options.secrets = secrets_;
  options.address = address;
  Side& side = sides_[2];
  Result<std::unique_ptr<wire::Listener>> again = wire::Listener::Create(
      *loop_, std::move(options), [&side](wire::Link link) { side.links->Accepted(std::move(link)); });
  ASSERT_TRUE(again.ok()) << again.status().message();
  side.listener = std::move(*again);
  RunUntil([&] { return side.got.size() == 1; });
}

}  // namespace
}  // namespace manta::node
