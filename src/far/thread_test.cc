#include "far/thread.h"

#include <gtest/gtest.h>

#include <future>

namespace manta::far {
namespace {

// As owner::Owner ends: connections come and go on the thread until it has stopped.
TEST(FarThread, WhatRunsWhileItStopsStillFindsItWhereItsOwnerHasIt) {
  std::unique_ptr<Thread> owned = std::move(*Thread::Start());
  std::promise<void> begun;
  std::promise<void> go_on;
  bool found = false;
  owned->Post([&] {
    begun.set_value();
    go_on.get_future().wait();
    found = owned != nullptr;
    if (found) owned->Post([] {});
  });
  begun.get_future().wait();
  std::thread other([&] { go_on.set_value(); });
  owned->Stop();
  EXPECT_TRUE(found);
  other.join();
}

TEST(FarThread, StopsOnceAndRunsWhatWasPostedBefore) {
  std::unique_ptr<Thread> owned = std::move(*Thread::Start());
  int ran = 0;
  for (int i = 0; i < 100; ++i) owned->Post([&] { ++ran; });
  owned->Stop();
  owned->Stop();
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace manta::far
