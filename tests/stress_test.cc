// A seeded random mix of everything at once, each result checked. A failure prints its seed; run it
// again with MANTA_STRESS_SEED=… (and longer with MANTA_STRESS_SECONDS=…).
#include <random>

#include "fixture.h"

namespace manta::testing {
namespace {

class Stress : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.store_bytes = 128 << 20;
    config.resources["slot"] = 1;
    return config;
  }
};

std::uint64_t Number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

int Twice(int x) { return 2 * x; }
int Total(const std::vector<int>& values) {
  int total = 0;
  for (int value : values) total += value;
  return total;
}
int Tree(int depth) {
  if (depth == 0) return 1;
  std::vector<Ref<int>> parts{Task(Tree).Remote(depth - 1), Task(Tree).Remote(depth - 1)};
  return parts[0].Get() + parts[1].Get();
}
std::vector<int> Make(int seed, int count) { return std::vector<int>(static_cast<std::size_t>(count), seed); }
int Last(const Array<int>& values) { return values[values.size() - 1]; }
int Fall(int x) {
  if (x % 2 == 0) throw std::runtime_error(std::to_string(x));
  raise(SIGKILL);
  return x;
}

class Ledger {
 public:
  int Add(int x) { return sum_ += x; }
  Ref<int> Later(int x) { return Task(Twice).Remote(x); }

 private:
  int sum_ = 0;
};

class Mix {
 public:
  explicit Mix(std::uint64_t seed) : random_(seed) {}

  void Step() {
    const int x = Draw(1'000'000);
    switch (Draw(14)) {
      case 0:
      case 1:
      case 2:
        Expect(Task(Twice).Remote(x), 2 * x);
        break;
      case 3:
        Expect(Task(Twice).Remote(Task(Twice).Remote(x)), 4 * x);
        break;
      case 4:
        Expect(Task(Total).Remote(std::vector<Ref<int>>{Put(x), Task(Twice).Remote(1), Put(3)}), x + 5);
        break;
      case 5:
        Expect(Task(Tree).Remote(1 + Draw(5)), -1);
        break;
      case 6: {
        const int count = 1 + Draw(200'000);
        Expect(Task(Last).Remote(Task(Make).Remote(x, count)), x);
        break;
      }
      case 7:
        Expect(Task(Twice).SetResource("slot", 1).SetCpus(0.1).Remote(x), 2 * x);
        break;
      case 8:
        Fails(Task(Fall).SetRetries(Draw(2)).Remote(x));
        break;
      case 9:
        CancelSome(x);
        break;
      case 10:
        NewActor();
        break;
      case 11:
        CallActor(x);
        break;
      case 12:
        KillSome();
        break;
      case 13:
        Borrow(x);
        break;
      default:
        break;
    }
    if (expected_.size() > 400) Settle();
  }

  void Settle() {
    for (auto& [ref, value] : expected_) {
      const int got = ref.Get(60s);
      if (value == -1) {  // a tree: any power of two
        ASSERT_EQ(got & (got - 1), 0);
      } else {
        ASSERT_EQ(got, value);
      }
      ++checked;
    }
    expected_.clear();
    for (const Ref<int>& ref : failing_) {
      const auto result = TryGet(ref, 60s);
      ASSERT_FALSE(result.ok());
      ASSERT_TRUE(result.code() == Code::kTaskFailed || result.code() == Code::kWorkerCrashed) << result.message();
      ++checked;
    }
    failing_.clear();
    for (const auto& [ref, value] : cancelled_) {
      auto result = TryGet(ref, 60s);
      if (result) {
        ASSERT_EQ(*result, value);
      } else {
        ASSERT_EQ(result.code(), Code::kCancelled) << result.message();
      }
      ++checked;
    }
    cancelled_.clear();
    for (const auto& [ref, value] : borrowed_) {  // of an actor that may have been killed since
      auto result = TryGet(ref, 60s);
      if (result) {
        ASSERT_EQ(*result, value);
      } else {
        ASSERT_EQ(result.code(), Code::kLost) << result.message();
      }
      ++checked;
    }
    borrowed_.clear();
    for (const auto& [ref, value] : orphans_) {
      auto result = TryGet(ref, 60s);
      if (result) {
        ASSERT_EQ(*result, value);
      } else {
        ASSERT_EQ(result.code(), Code::kActorDied) << result.message();
      }
      ++checked;
    }
    orphans_.clear();
  }

  int checked = 0;

 private:
  struct Account {
    ActorHandle<Ledger> ledger;
    int sum = 0;
    std::vector<std::pair<Ref<int>, int>> calls;
  };

  int Draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  void Expect(Ref<int> ref, int value) { expected_.emplace_back(std::move(ref), value); }
  void Fails(Ref<int> ref) { failing_.push_back(std::move(ref)); }
  void CancelSome(int x) {
    Ref<int> ref = Task(Twice).Remote(x);
    Cancel(ref, Draw(2) == 0);
    cancelled_.emplace_back(std::move(ref), 2 * x);
  }
  void NewActor() {
    if (accounts_.size() < 6) accounts_.push_back({Actor<Ledger>().Remote(), 0, {}});
  }
  void CallActor(int x) {
    if (accounts_.empty()) return;
    Account& account = accounts_[static_cast<std::size_t>(Draw(static_cast<int>(accounts_.size())))];
    for (int i = 0; i < 20; ++i) {
      account.sum += x % 100;
      account.calls.emplace_back(account.ledger.Task(&Ledger::Add).Remote(x % 100), account.sum);
    }
  }
  // Half of them die with calls under way, which may or may not have been answered.
  void KillSome() {
    if (accounts_.empty()) return;
    Account account = std::move(accounts_.back());
    accounts_.pop_back();
    if (Draw(2) == 0) {
      Kill(account.ledger);
      for (auto& call : account.calls) orphans_.push_back(std::move(call));
    } else {
      for (auto& call : account.calls) expected_.push_back(std::move(call));
    }
  }
  void Borrow(int x) {
    if (accounts_.empty()) return;
    borrowed_.emplace_back(accounts_.front().ledger.Task(&Ledger::Later).Remote(x).Get(60s), 2 * x);
  }

  std::mt19937_64 random_;
  std::vector<std::pair<Ref<int>, int>> expected_;
  std::vector<Ref<int>> failing_;
  std::vector<std::pair<Ref<int>, int>> cancelled_;
  std::vector<std::pair<Ref<int>, int>> orphans_;
  std::vector<std::pair<Ref<int>, int>> borrowed_;
  std::vector<Account> accounts_;
};

TEST_F(Stress, EverythingAtOnceGivesTheRightResults) {
  const std::uint64_t seed = Number("MANTA_STRESS_SEED", std::random_device()());
  SCOPED_TRACE("MANTA_STRESS_SEED=" + std::to_string(seed));
  RecordProperty("seed", std::to_string(seed));
  const auto end = Clock::now() + std::chrono::seconds(Number("MANTA_STRESS_SECONDS", 8));
  Mix mix(seed);
  while (Clock::now() < end && !HasFatalFailure()) mix.Step();
  mix.Settle();
  EXPECT_GT(mix.checked, 100);
}

TEST_F(Stress, OnePercentOfTasksDyingLeavesTheRestRight) {
  constexpr int kTasks = 3'000;
  std::vector<Ref<int>> refs;
  for (int i = 0; i < kTasks; ++i) {
    refs.push_back(Task([](int n) {
                     if (n % 200 == 13) raise(SIGKILL);
                     if (n % 200 == 113) throw std::runtime_error("unlucky");
                     return n + 1;
                   })
                       .SetRetries(0)
                       .Remote(i));
  }
  int failed = 0;
  for (int i = 0; i < kTasks; ++i) {
    auto result = TryGet(refs[static_cast<std::size_t>(i)], 60s);
    if (i % 200 == 13) {
      EXPECT_EQ(result.code(), Code::kWorkerCrashed);
    } else if (i % 200 == 113) {
      EXPECT_EQ(result.code(), Code::kTaskFailed);
    } else {
      ASSERT_TRUE(result.ok()) << i << ": " << result.message();
      ASSERT_EQ(*result, i + 1);
      continue;
    }
    ++failed;
  }
  EXPECT_EQ(failed, kTasks / 100);
}

TEST_F(Stress, ManyShortClustersLeaveNothing) {
  Shutdown();
  for (int i = 0; i < 20; ++i) {
    Init(MakeConfig());
    if (i % 2 == 0) {
      EXPECT_EQ(Task(Twice).Remote(i).Get(), 2 * i);
    }
    Shutdown();
  }
}

}  // namespace
}  // namespace manta::testing
