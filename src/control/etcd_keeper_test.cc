#include "control/etcd_keeper.h"

#include <gtest/gtest.h>

#include "control/test_etcd.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

class EtcdKeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasEtcd()) GTEST_SKIP() << "there is no etcd";
    etcd_.Start(folder_.path());
  }
  [[nodiscard]] EtcdOptions Options(const std::string& name) const {
    EtcdOptions options;
    options.servers = {etcd_.address()};
    options.prefix = "test/chain-0";
    options.name = name;
    options.term_us = 2'000'000;
    options.look_us = 20'000;
    return options;
  }
  std::unique_ptr<EtcdKeeper> Make(EtcdOptions options) {
    Result<std::unique_ptr<EtcdKeeper>> keeper = EtcdKeeper::Create(*loop_, std::move(options));
    EXPECT_TRUE(keeper.ok()) << keeper.status().message();
    return std::move(*keeper);
  }
  static Result<SavedChain> Open(std::optional<SavedChain> last) {
    SavedChain next = last.value_or(SavedChain{});
    ++next.openings;
    return next;
  }
  Status SaveNow(EtcdKeeper& keeper, const SavedChain& chain) {
    std::optional<Status> answer;
    keeper.Save(chain, [&](const Status& status) { answer = status; });
    if (!RunUntil(*loop_, [&] { return answer.has_value(); })) return Status(Code::kTimedOut, "no answer to Save");
    return *answer;
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  EtcdServer etcd_;
};

TEST_F(EtcdKeeperTest, WhatOneSavesTheNextFindsAndTheSeatIsGivenBack) {
  std::unique_ptr<EtcdKeeper> first = Make(Options("first"));
  Result<SavedChain> taken = first->Take(Open);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(taken->openings, 1U);
  EXPECT_GT(first->UntilMicros(), base::NowMicros());
  taken->config.epoch = 7;
  taken->addresses = {"a", "b"};
  ASSERT_TRUE(SaveNow(*first, *taken).ok());
  taken->config.epoch = 8;
  ASSERT_TRUE(SaveNow(*first, *taken).ok());
  first.reset();
  std::unique_ptr<EtcdKeeper> second = Make(Options("second"));
  const std::int64_t begin = base::NowMicros();
  const Result<SavedChain> next = second->Take(Open);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(next.value().openings, 2U);
  EXPECT_EQ(next.value().config.epoch, 8U);
  EXPECT_EQ(next.value().addresses, (std::vector<std::string>{"a", "b"}));
  EXPECT_LT(base::NowMicros() - begin, 60'000'000);
  const Result<SavedChain> seen = EtcdKeeper::Look(*loop_, Options("reader"));
  ASSERT_TRUE(seen.ok()) << seen.status().message();
  EXPECT_EQ(seen.value().openings, 2U);
}

TEST_F(EtcdKeeperTest, WhileThereIsAFrontOthersWaitAndSayForWhom) {
  std::unique_ptr<EtcdKeeper> first = Make(Options("first"));
  ASSERT_TRUE(first->Take(Open).ok());
  EtcdOptions options = Options("second");
  std::string said;
  options.note = [&](const std::string& text) { said += text; };
  // Longer than a term: what the first renews, meanwhile, the second cannot have.
  const std::int64_t until = base::NowMicros() + 3'000'000;
  options.give_up = [&] { return base::NowMicros() > until; };
  std::unique_ptr<EtcdKeeper> second = Make(options);
  EXPECT_EQ(second->Take(Open).status().code(), Code::kCancelled);
  EXPECT_NE(said.find("first is the front"), std::string::npos) << said;
}

// It is stopped, or cut off, while another one takes over: whatever it saves then is refused.
TEST_F(EtcdKeeperTest, AFormerFrontCannotSaveAndIsTold) {
  std::unique_ptr<EtcdKeeper> first = Make(Options("first"));
  Result<SavedChain> taken = first->Take(Open);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  std::string lost;
  first->OnLost([&](const Status& why) { lost = why.message(); });
  // It does not run meanwhile: its loop is not this one's.
  std::unique_ptr<base::Loop> other = std::move(*base::Loop::Create());
  Result<std::unique_ptr<EtcdKeeper>> second = EtcdKeeper::Create(*other, Options("second"));
  ASSERT_TRUE(second.ok());
  const Result<SavedChain> next = (*second)->Take(Open);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(next.value().openings, 2U);
  EXPECT_LE(first->UntilMicros(), base::NowMicros()) << "both may grant";
  taken->config.epoch = 9;
  EXPECT_EQ(SaveNow(*first, *taken).code(), Code::kLost);
  EXPECT_NE(lost, "");
  EXPECT_EQ(first->UntilMicros(), 0);
}

TEST_F(EtcdKeeperTest, WithoutEtcdTheTermRunsOutAndWithItThingsGoOn) {
  std::unique_ptr<EtcdKeeper> front = Make(Options("front"));
  Result<SavedChain> taken = front->Take(Open);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  std::string lost;
  front->OnLost([&](const Status& why) { lost = why.message(); });
  etcd_.Kill();
  std::optional<Status> saved;
  taken->config.epoch = 5;
  front->Save(*taken, [&](const Status& status) { saved = status; });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return front->UntilMicros() < base::NowMicros(); }));
  EXPECT_FALSE(saved.has_value());
  etcd_.Start(folder_.path());
  ASSERT_TRUE(RunUntil(*loop_, [&] { return saved.has_value() && front->UntilMicros() > base::NowMicros(); }));
  EXPECT_TRUE(saved->ok()) << saved->message();
  EXPECT_EQ(lost, "");
  const Result<SavedChain> seen = EtcdKeeper::Look(*loop_, Options("reader"));
  ASSERT_TRUE(seen.ok()) << seen.status().message();
  EXPECT_EQ(seen.value().config.epoch, 5U);
}

TEST_F(EtcdKeeperTest, AServerThatIsDownIsPassedOver) {
  EtcdOptions options = Options("front");
  options.servers = {"127.0.0.1:1", "http://" + etcd_.address()};
  EXPECT_TRUE(Make(options)->Take(Open).ok());
  options.servers = {"https://127.0.0.1:1"};
  EXPECT_EQ(EtcdKeeper::Create(*loop_, options).status().code(), Code::kInvalid);
}

TEST(Base64, GoesBothWays) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    const Result<std::string> back = FromBase64(ToBase64(bytes));
    ASSERT_TRUE(back.ok());
    ASSERT_EQ(back.value(), bytes);
    bytes.push_back(static_cast<char>(i * 37));
  }
  EXPECT_EQ(ToBase64("ab"), "YWI=");
  EXPECT_FALSE(FromBase64("a*b").ok());
}

}  // namespace
}  // namespace manta::control
