#include "control/chained_storage.h"

#include <gtest/gtest.h>

#include "control/chain_host.h"
#include "control/test_util.h"
#include "wire/local_listener.h"

namespace manta::control {
namespace {

// Members and front on one loop; ending a member cuts its links as the end of its process would.
class ChainedStorageTest : public testing::Test {
 protected:
  struct Member {
    std::unique_ptr<ChainHost> host;
    std::unique_ptr<wire::LocalListener> listener;
  };

  [[nodiscard]] std::string AddressOf(std::size_t i) const {
    return "@manta-chain-test-" + std::to_string(getpid()) + "-" + std::to_string(i);
  }
  void Start(std::size_t i) {
    ChainHostOptions options;
    options.folder = folder_.path() + "/member-" + std::to_string(i);
    Result<std::unique_ptr<ChainHost>> host = ChainHost::Open(*loop_, options);
    ASSERT_TRUE(host.ok()) << host.status().message();
    Member& member = members_[i];
    member.host = std::move(*host);
    auto listener = wire::LocalListener::Listen(
        *loop_, AddressOf(i), "member",
        [raw = member.host.get()](base::Fd socket) { ASSERT_TRUE(raw->Add(wire::Stream(std::move(socket))).ok()); });
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    member.listener = std::move(*listener);
  }
  void End(std::size_t i) {
    members_[i].listener.reset();
    members_[i].host.reset();
  }
  Result<std::unique_ptr<ChainedStorage>> OpenFront(std::size_t members) {
    ChainedOptions options;
    options.folder = folder_.path() + "/front";
    options.patience_us = 5'000'000;
    for (std::size_t i = 1; i <= members; ++i) options.addresses.push_back(AddressOf(i));
    return ChainedStorage::Open(*loop_, options);
  }
  void Open(std::size_t members) {
    for (std::size_t i = 1; i <= members; ++i) Start(i);
    Result<std::unique_ptr<ChainedStorage>> front = OpenFront(members);
    ASSERT_TRUE(front.ok()) << front.status().message();
    front_ = std::move(*front);
    ASSERT_TRUE(Whole(members)) << front_->Describe();
  }
  // All of them are members, and none is still joining.
  bool Whole(std::size_t members) {
    return RunUntil(*loop_, [&] {
      return front_->config().members.size() == members && front_->config().joiner == rules::kNoMember;
    });
  }
  std::string Put(const std::string& key, const std::string& value) {
    const Result<std::uint64_t> result = PutNow(*loop_, *front_, Table::kKeyValue, key, value);
    return result.ok() ? "" : result.status().message();
  }
  std::string Value(const std::string& key) { return ValueNow(*loop_, *front_, Table::kKeyValue, key); }
  // As one member has it in its own storage.
  std::string ValueAt(std::size_t i, const std::string& key) {
    return ValueNow(*loop_, const_cast<Storage&>(members_[i].host->storage()), Table::kKeyValue, key);
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::map<std::size_t, Member> members_;
  std::unique_ptr<ChainedStorage> front_;
};

TEST_F(ChainedStorageTest, WhatIsWrittenIsInEveryMember) {
  Open(3);
  EXPECT_EQ(Put("a", "1"), "");
  EXPECT_EQ(Put("b", "2"), "");
  EXPECT_EQ(Value("a"), "1");
  EXPECT_EQ(Value("none"), "-");
  EXPECT_EQ(ScanText(*loop_, *front_, Table::kKeyValue, ""), "a=1 b=2");
  for (std::size_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(ValueAt(i, "a"), "1");
    EXPECT_EQ(ValueAt(i, "b"), "2");
  }
}

TEST_F(ChainedStorageTest, WhicheverMemberEndsNothingIsLostAndItComesBack) {
  Open(3);
  int written = 0;
  for (const std::size_t victim : {1, 2, 3, 2, 1, 3}) {
    EXPECT_EQ(Put("k" + std::to_string(written++), "v"), "");
    End(victim);
    EXPECT_EQ(Put("k" + std::to_string(written++), "v"), "");
    for (int i = 0; i < written; ++i) ASSERT_EQ(Value("k" + std::to_string(i)), "v") << i;
    Start(victim);
    ASSERT_TRUE(Whole(3)) << front_->Describe();
  }
  EXPECT_EQ(Put("last", "v"), "");
  for (std::size_t member = 1; member <= 3; ++member) {
    for (int i = 0; i < written; ++i) EXPECT_EQ(ValueAt(member, "k" + std::to_string(i)), "v") << member << " " << i;
  }
}

TEST_F(ChainedStorageTest, AMemberWhoseLogDifferedIsFilledAnew) {
  Open(2);
  EXPECT_EQ(Put("a", "1"), "");
  // What the head alone has: the other one is gone, then the head, and the other is all there is.
  const rules::MemberId head = front_->config().head();
  const rules::MemberId tail = front_->config().tail();
  End(tail);
  EXPECT_EQ(Put("b", "2"), "");
  End(head);
  // The chain waits for the one that has everything; the other may not go on alone.
  Start(tail);
  const std::int64_t until = base::NowMicros() + 300'000;
  while (base::NowMicros() < until) loop_->RunOnce(10'000);
  EXPECT_EQ(front_->config().members, std::vector<rules::MemberId>{head});
  Start(head);
  ASSERT_TRUE(Whole(2)) << front_->Describe();
  EXPECT_EQ(Value("b"), "2");
  EXPECT_EQ(ValueAt(tail, "b"), "2");
}

TEST_F(ChainedStorageTest, AMemberThatLostItsFolderIsFilledFromACopyWhileWritesGoOn) {
  Open(2);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Put("k" + std::to_string(i % 60), std::to_string(i)), "");
  End(2);
  std::filesystem::remove_all(folder_.path() + "/member-2");
  for (int i = 100; i < 110; ++i) ASSERT_EQ(Put("k" + std::to_string(i % 60), std::to_string(i)), "");
  Start(2);
  int i = 110;
  while (front_->config().members.size() < 2 && i < 2'000) ASSERT_EQ(Put("k" + std::to_string(i++ % 60), "w"), "");
  ASSERT_TRUE(Whole(2)) << front_->Describe();
  for (int k = 0; k < 60; ++k) {
    const std::string key = "k" + std::to_string(k);
    EXPECT_EQ(ValueAt(1, key), ValueAt(2, key)) << key;
  }
}

TEST_F(ChainedStorageTest, TheLastMemberIsNotReplacedByAnEmptyOne) {
  Open(1);
  EXPECT_EQ(Put("a", "1"), "");
  End(1);
  std::filesystem::rename(folder_.path() + "/member-1", folder_.path() + "/kept");
  Start(1);
  const std::int64_t until = base::NowMicros() + 200'000;
  while (base::NowMicros() < until) loop_->RunOnce(10'000);
  EXPECT_NE(front_->Describe().find("counts on the copy of member 1"), std::string::npos) << front_->Describe();
  End(1);
  std::filesystem::remove_all(folder_.path() + "/member-1");
  std::filesystem::rename(folder_.path() + "/kept", folder_.path() + "/member-1");
  Start(1);
  EXPECT_EQ(Value("a"), "1");
}

TEST_F(ChainedStorageTest, AMemberOfAnotherChainIsNotTouched) {
  Open(1);
  EXPECT_EQ(Put("a", "1"), "");
  ChainedOptions options;
  options.folder = folder_.path() + "/other-front";
  options.patience_us = 300'000;
  options.addresses = {AddressOf(1)};
  const Result<std::unique_ptr<ChainedStorage>> other = ChainedStorage::Open(*loop_, options);
  EXPECT_NE(other.status().message().find("belongs to chain"), std::string::npos) << other.status().message();
  EXPECT_EQ(Value("a"), "1");
}

TEST_F(ChainedStorageTest, ARetryAfterARestartOfTheFrontIsKnownAndAppliedOnce) {
  Open(2);
  Batch batch;
  batch.client = Id{7, 7};
  batch.client_sequence = 1;
  batch.writes.push_back(Write{Table::kKeyValue, "x", "1"});
  const Result<std::uint64_t> first = ApplyNow(*loop_, *front_, batch);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const std::uint64_t epoch = front_->epoch();
  front_.reset();
  Result<std::unique_ptr<ChainedStorage>> front = OpenFront(2);
  ASSERT_TRUE(front.ok()) << front.status().message();
  front_ = std::move(*front);
  EXPECT_EQ(front_->epoch(), epoch + 1);
  EXPECT_EQ(front_->Applied(Id{7, 7}, 1), first.value());
  EXPECT_EQ(front_->last_sequence(), first.value());
  const Result<std::uint64_t> again = ApplyNow(*loop_, *front_, batch);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value(), first.value());
}

TEST_F(ChainedStorageTest, ASecondFrontAndOtherMembersAreRefused) {
  Open(2);
  EXPECT_EQ(OpenFront(2).status().code(), Code::kInvalid);
  front_.reset();
  EXPECT_EQ(OpenFront(1).status().code(), Code::kInvalid);
}

TEST_F(ChainedStorageTest, AnOldConfigurationIsNotUsed) {
  Open(2);
  const Result<std::string> old = ReadSmallFile(folder_.path() + "/front/chain");
  ASSERT_TRUE(old.ok());
  End(2);
  EXPECT_EQ(Put("a", "1"), "");
  front_.reset();
  ASSERT_TRUE(WriteSmallFile(folder_.path() + "/front/chain", old.value()).ok());
  const Result<std::unique_ptr<ChainedStorage>> front = OpenFront(2);
  EXPECT_EQ(front.status().code(), Code::kLost) << front.status().message();
}

}  // namespace
}  // namespace manta::control
