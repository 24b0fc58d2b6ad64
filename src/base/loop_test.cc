#include "base/loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/clock.h"

namespace manta::base {
namespace {

class LoopTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Loop>> made = Loop::Create();
    ASSERT_TRUE(made.ok());
    loop_ = std::move(*made);
  }
  static std::array<Fd, 2> Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    return {Fd(fds[0]), Fd(fds[1])};
  }
  std::unique_ptr<Loop> loop_;
};

TEST_F(LoopTest, AReadableDescriptorIsReportedUntilItIsRead) {
  auto [here, there] = Pair();
  int calls = 0;
  ASSERT_TRUE(loop_->Watch(here.get(), EPOLLIN, [&](std::uint32_t) { ++calls; }).ok());
  loop_->RunOnce(0);
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(write(there.get(), "x", 1), 1);
  loop_->RunOnce(-1);
  loop_->RunOnce(-1);
  EXPECT_EQ(calls, 2);
}

TEST_F(LoopTest, ACallbackMayUnwatchItselfAndOthersOfTheSameRound) {
  std::vector<std::array<Fd, 2>> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(Pair());
  int calls = 0;
  for (auto& pair : pairs) {
    ASSERT_TRUE(loop_
                    ->Watch(pair[0].get(), EPOLLIN,
                            [&](std::uint32_t) {
                              ++calls;
                              for (auto& other : pairs) loop_->Unwatch(other[0].get());
                            })
                    .ok());
    ASSERT_EQ(write(pair[1].get(), "x", 1), 1);
  }
  loop_->RunOnce(-1);
  loop_->RunOnce(0);
  EXPECT_EQ(calls, 1);
}

TEST_F(LoopTest, AReusedDescriptorNumberDoesNotGetItsFormerOwnersEvent) {
  auto first = Pair();
  auto second = Pair();
  int stale = 0;
  const auto replace = [&](std::array<Fd, 2>& victim) {
    loop_->Unwatch(victim[0].get());
    const int number = victim[0].get();
    auto fresh = Pair();
    dup2(fresh[0].get(), number);
    EXPECT_TRUE(loop_->Watch(number, EPOLLIN, [&](std::uint32_t) { ++stale; }).ok());
    victim[1] = std::move(fresh[1]);
  };
  int calls = 0;
  ASSERT_TRUE(loop_
                  ->Watch(first[0].get(), EPOLLIN,
                          [&](std::uint32_t) {
                            if (calls++ == 0) replace(second);
                          })
                  .ok());
  ASSERT_TRUE(loop_
                  ->Watch(second[0].get(), EPOLLIN,
                          [&](std::uint32_t) {
                            if (calls++ == 0) replace(first);
                          })
                  .ok());
  ASSERT_EQ(write(first[1].get(), "x", 1), 1);
  ASSERT_EQ(write(second[1].get(), "x", 1), 1);
  loop_->RunOnce(-1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(stale, 0);
}

TEST_F(LoopTest, TimersRunInTheOrderTheyAreDue) {
  std::string order;
  loop_->After(2000, [&] { order += 'b'; });
  loop_->After(1000, [&] { order += 'a'; });
  loop_->After(3000, [&] {
    order += 'c';
    loop_->Stop();
  });
  loop_->Run();
  EXPECT_EQ(order, "abc");
}

TEST_F(LoopTest, ARepeatingTimerCanCancelItself) {
  int calls = 0;
  Loop::TimerId timer = 0;
  timer = loop_->Every(500, [&] {
    if (++calls != 3) return;
    loop_->Cancel(timer);
    loop_->After(5000, [&] { loop_->Stop(); });
  });
  loop_->Run();
  EXPECT_EQ(calls, 3);
}

TEST_F(LoopTest, ATimerSetForAtOnceByATimerWaitsForTheNextRound) {
  int calls = 0;
  std::function<void()> again = [&] {
    ++calls;
    loop_->After(0, again);
  };
  loop_->After(0, again);
  loop_->RunOnce(0);
  EXPECT_EQ(calls, 1);
  loop_->RunOnce(0);
  EXPECT_EQ(calls, 2);
}

TEST_F(LoopTest, DrainSeesEverythingThatWasSentBeforeIt) {
  std::vector<std::array<Fd, 2>> pairs;
  std::size_t seen = 0;
  for (int i = 0; i < 200; ++i) pairs.push_back(Pair());
  for (auto& pair : pairs) {
    const int fd = pair[0].get();
    ASSERT_TRUE(loop_
                    ->Watch(fd, EPOLLIN,
                            [&seen, fd](std::uint32_t) {
                              char byte = 0;
                              if (read(fd, &byte, 1) == 1) ++seen;
                            })
                    .ok());
    ASSERT_EQ(write(pair[1].get(), "x", 1), 1);
  }
  int timers = 0;
  loop_->After(0, [&] { ++timers; });
  loop_->Drain();
  EXPECT_EQ(seen, pairs.size());
  EXPECT_EQ(timers, 0);
}

TEST_F(LoopTest, AnIdleLoopSleepsUntilItsTimer) {
  const std::int64_t start = NowMicros();
  loop_->After(5000, [] {});
  loop_->RunOnce(-1);
  EXPECT_GE(NowMicros() - start, 5000);
}

TEST_F(LoopTest, WhatIsExpectedIsSeenAndWhatDoesNotComeIsNotWaitedForLongerThanAllowed) {
  auto [here, there] = Pair();
  int calls = 0;
  ASSERT_TRUE(loop_->Watch(here.get(), EPOLLIN, [&](std::uint32_t) { ++calls; }).ok());
  loop_->Expect(1'000'000'000);
  ASSERT_EQ(write(there.get(), "x", 1), 1);
  loop_->RunOnce(-1);
  EXPECT_EQ(calls, 1);
  loop_->Unwatch(here.get());
  loop_->Expect(1000);
  loop_->RunOnce(2000);  // comes back, though nothing happens
  EXPECT_EQ(calls, 1);
}

TEST_F(LoopTest, WatchingAClosedDescriptorIsAnError) {
  EXPECT_FALSE(loop_->Watch(-1, EPOLLIN, [](std::uint32_t) {}).ok());
}

}  // namespace
}  // namespace manta::base
