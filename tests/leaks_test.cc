// What a worker allocates it frees again. LeakSanitizer looks when a process exits, which workers do not (they are
// killed or leave by _exit), so here a task asks it in the worker that has just done the work. The driver and the
// daemon exit, and are looked at by every test.
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "fixture.h"

extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace manta::testing {
namespace {

// Zero if this process has lost nothing. The report goes where all reports go, and fails the test there, too.
int LeaksHere() { return __lsan_do_recoverable_leak_check(); }

// One CPU, so that the task that looks runs where the others ran.
class Leaks : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.cpus = 1;
    return config;
  }
  void SetUp() override {
    if (&__lsan_do_recoverable_leak_check == nullptr) GTEST_SKIP() << "needs LeakSanitizer (make asan)";
    ClusterTest::SetUp();
    skipped_ = false;
  }
  void TearDown() override {
    if (skipped_) return;
    EXPECT_EQ(Task(LeaksHere).SetRetries(0).Remote().Get(60s), 0) << "in the worker";
    EXPECT_EQ(LeaksHere(), 0) << "in the driver";
    ClusterTest::TearDown();
  }

 private:
  bool skipped_ = true;
};

std::vector<int> Make(int count) { return std::vector<int>(static_cast<std::size_t>(count), 1); }
int Sum(const std::vector<int>& values) { return std::accumulate(values.begin(), values.end(), 0); }

TEST_F(Leaks, NoneAfterSmallAndLargeValues) {
  for (const int count : {1, 1'000, 1'000'000}) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Task(Sum).Remote(Task(Make).Remote(count)).Get(60s), count);
  }
}

TEST_F(Leaks, NoneAfterExceptionsWithArgumentsLargeAndSmall) {
  auto fall = [](const std::vector<int>& values, const std::string& text) -> int {
    const std::vector<int> copy = values;
    throw std::runtime_error(text + std::to_string(copy.size()));
  };
  for (const int count : {10, 1'000'000}) {
    for (int i = 0; i < 10; ++i) {
      EXPECT_THROW(Task(fall).Remote(Task(Make).Remote(count), std::string(100, 'x')).Get(60s), TaskError);
    }
  }
}

TEST_F(Leaks, NoneAfterNestedTasksAndRefsThatTravel) {
  auto parent = [](int count) {
    const Ref<std::vector<int>> own = Put(Make(count));
    const int sum = Task(Sum).Remote(Task(Make).Remote(count)).Get() + Task(Sum).Remote(own).Get();
    return std::vector<Ref<int>>{Put(sum),
                                 Task([](const Ref<std::vector<int>>& x) { return Sum(x.Get()); }).Remote(own)};
  };
  for (const int count : {10, 1'000'000}) {
    for (int i = 0; i < 5; ++i) {
      const std::vector<Ref<int>> both = Task(parent).Remote(count).Get(60s);
      EXPECT_EQ(both[0].Get(60s), 2 * count);
      EXPECT_EQ(both[1].Get(60s), count);
    }
  }
}

struct Hoard {
  int Keep(Ref<std::vector<int>> ref) {
    refs.push_back(ref);
    return Sum(ref.Get());
  }
  int Fall(const std::vector<int>& values) { throw std::runtime_error(std::to_string(values.size())); }
  int Leaks() {
    refs.clear();
    return LeaksHere();
  }
  std::vector<Ref<std::vector<int>>> refs;
};

TEST_F(Leaks, NoneInAnActor) {
  for (const std::uint32_t calls : {1U, 3U}) {
    auto hoard = Actor<Hoard>().SetMaxConcurrency(calls).Remote();
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(hoard.Task(&Hoard::Keep).Remote(Task(Make).Remote(10'000)).Get(60s), 10'000);
      EXPECT_THROW(hoard.Task(&Hoard::Fall).Remote(Make(10'000)).Get(60s), TaskError);
    }
    EXPECT_EQ(hoard.Task(&Hoard::Leaks).Remote().Get(60s), 0) << "in the actor";
  }
}

}  // namespace
}  // namespace manta::testing
