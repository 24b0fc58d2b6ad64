#include "load.h"

#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "board.h"
#include "harness.h"

namespace chaos {
namespace {

using std::chrono::milliseconds;
using Value = std::vector<std::uint64_t>;
using bench::Board;
using bench::Execution;
using Kind = Execution::Kind;

constexpr std::size_t kWords = 4096;  // 32 KB: in a node's store, and lost with it
constexpr int kSteps = 12;
constexpr int kDepth = 4;
constexpr std::size_t kCounters = 4;
constexpr std::size_t kCallers = 3;
constexpr std::size_t kAhead = 10;  // calls that a caller has on their way
constexpr std::size_t kAccounts = 6;
constexpr std::int64_t kStartBalance = 1'000'000;

Value Mixed(Value value, int step) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] = value[i] * 6364136223846793005U + i + static_cast<std::uint64_t>(step);
  }
  return value;
}

Value Step(const Value& before, int step, const std::string& file) {
  const Execution execution(file, Kind::kTask);
  std::this_thread::sleep_for(milliseconds(5));
  return Mixed(before, step);
}

std::uint64_t TreeSum(std::uint64_t seed, int depth) {
  if (depth == 0) return seed * 2654435761U % 1'000'003;
  return TreeSum(2 * seed, depth - 1) + 3 * TreeSum(2 * seed + 1, depth - 1);
}

std::uint64_t Tree(std::uint64_t seed, int depth, const std::string& file) {
  const Execution execution(file, Kind::kTask);
  if (depth == 0) {
    std::this_thread::sleep_for(milliseconds(2));
    return TreeSum(seed, 0);
  }
  const manta::Ref<std::uint64_t> left = manta::Task(Tree).Remote(2 * seed, depth - 1, file);
  const manta::Ref<std::uint64_t> right = manta::Task(Tree).Remote(2 * seed + 1, depth - 1, file);
  return left.Get() + 3 * right.Get();
}

class Counter {
 public:
  explicit Counter(std::string file) : file_(std::move(file)) {}
  std::int64_t Next() {
    const Execution execution(file_, Kind::kCall);
    std::this_thread::sleep_for(milliseconds(1));
    return ++value_;
  }
  int Pid() const { return ::getpid(); }
  MANTA_FIELDS(file_, value_)

  Counter() = default;

 private:
  std::string file_;
  std::int64_t value_ = 0;
};

class Account {
 public:
  Account(std::string file, std::int64_t balance) : file_(std::move(file)), balance_(balance) {}
  std::int64_t Add(std::int64_t amount) {
    const Execution execution(file_, Kind::kCall);
    return balance_ += amount;
  }
  std::int64_t Balance() const { return balance_; }
  MANTA_FIELDS(file_, balance_)

  Account() = default;

 private:
  std::string file_;
  std::int64_t balance_ = 0;
};

using AccountHandle = manta::ActorHandle<Account>;

// Two effects in one task: if its worker dies between them, the task is begun again, and neither happens twice.
int Move(AccountHandle from, AccountHandle to, std::int64_t amount, const std::string& file) {
  const Execution execution(file, Kind::kTask);
  static_cast<void>(from.Task(&Account::Add).Remote(-amount).Get());
  std::this_thread::sleep_for(milliseconds(2));
  static_cast<void>(to.Task(&Account::Add).Remote(amount).Get());
  return 1;
}

}  // namespace

struct Load::Actors {
  std::vector<manta::ActorHandle<Counter>> counters;
  std::vector<AccountHandle> accounts;
  std::mutex mutex;                                // guards what follows
  std::vector<std::vector<std::int64_t>> answers;  // by counter
  std::vector<std::uint64_t> asked;                // by counter
  std::vector<std::int64_t> balances;              // as they should be
};

Load::Load(std::string file, std::uint64_t seed)
    : file_(std::move(file)), seed_(seed), actors_(std::make_unique<Actors>()) {
  for (std::size_t i = 0; i < kCounters; ++i) {
    auto creator = manta::Actor<Counter>();
    creator.Spread();
    actors_->counters.push_back(creator.Remote(file_));
  }
  for (std::size_t i = 0; i < kAccounts; ++i) {
    auto creator = manta::Actor<Account>();
    creator.Spread();
    actors_->accounts.push_back(creator.Remote(file_, kStartBalance));
  }
  actors_->answers.resize(kCounters);
  actors_->asked.resize(kCounters);
  actors_->balances.assign(kAccounts, kStartBalance);
  Start("chains", [this] { Chains(); });
  Start("trees", [this] { Trees(); });
  for (std::size_t caller = 0; caller < kCallers; ++caller) {
    Start("counters", [this, caller] { Count(caller); });
  }
  Start("transfers", [this] { Transfer(); });
}

Load::~Load() {
  stop_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Load::Start(const std::string& name, std::function<void()> round) {
  threads_.emplace_back([this, name, round = std::move(round)] {
    while (!stop_) {
      const double begin = bench::Now();
      try {
        round();
      } catch (const std::exception& error) {
        Note(&Tally::lost, 1, name + ": " + error.what());
      }
      const std::lock_guard lock(mutex_);
      tally_.longest_pause = std::max(tally_.longest_pause, bench::Now() - begin);
    }
  });
}

void Load::Note(std::uint64_t Tally::* kind, std::uint64_t count, const std::string& text) {
  const std::lock_guard lock(mutex_);
  tally_.*kind += count;
  const std::string line = text.substr(0, text.find('\n'));
  if (tally_.said.size() < 20 && std::find(tally_.said.begin(), tally_.said.end(), line) == tally_.said.end()) {
    tally_.said.push_back(line);
  }
}

void Load::Chains() {
  constexpr std::uint64_t kAtOnce = 4;
  auto step = manta::Task(Step);
  step.Spread();
  std::vector<manta::Ref<Value>> ends;
  for (std::uint64_t i = 0; i < kAtOnce; ++i) {
    manta::Ref<Value> end = step.Remote(Value(kWords, seed_ + i), 0, file_);
    for (int at = 1; at < kSteps; ++at) end = step.Remote(end, at, file_);
    ends.push_back(end);
  }
  {
    const std::lock_guard lock(mutex_);
    tally_.tasks += kAtOnce * kSteps;
  }
  for (std::uint64_t i = 0; i < kAtOnce; ++i) {
    Value expected(kWords, seed_ + i);
    for (int at = 0; at < kSteps; ++at) expected = Mixed(std::move(expected), at);
    if (ends[i].Get() != expected) Note(&Tally::wrong, 1, "a chain ended with a wrong value");
  }
}

void Load::Trees() {
  const std::uint64_t root = seed_ % 1000 + 1;
  {
    const std::lock_guard lock(mutex_);
    tally_.tasks += (2U << kDepth) - 1;
  }
  if (manta::Task(Tree).Remote(root, kDepth, file_).Get() != TreeSum(root, kDepth)) {
    Note(&Tally::wrong, 1, "a tree gave a wrong sum");
  }
}

void Load::Count(std::size_t caller) {
  static thread_local std::size_t round = caller;
  const std::size_t which = ++round % kCounters;
  std::vector<manta::Ref<std::int64_t>> refs;
  {
    const std::lock_guard lock(actors_->mutex);
    actors_->asked[which] += kAhead;
  }
  {
    const std::lock_guard lock(mutex_);
    tally_.calls += kAhead;
  }
  for (std::size_t i = 0; i < kAhead; ++i) {
    refs.push_back(actors_->counters[which].Task(&Counter::Next).Remote());
  }
  std::int64_t before = 0;
  for (const manta::Ref<std::int64_t>& ref : refs) {
    std::int64_t answer = 0;
    try {
      answer = ref.Get();
    } catch (const std::exception& error) {
      Note(&Tally::lost, 1, std::string("a call of a counter: ") + error.what());
      continue;
    }
    if (answer <= before) Note(&Tally::wrong, 1, "a counter answered one caller out of order");
    before = answer;
    const std::lock_guard lock(actors_->mutex);
    actors_->answers[which].push_back(answer);
  }
}

void Load::Transfer() {
  static thread_local std::mt19937_64 random(seed_);
  std::vector<manta::Ref<int>> refs;
  auto move = manta::Task(Move);
  move.Spread();
  for (int i = 0; i < 8; ++i) {
    const std::size_t from = random() % kAccounts;
    const std::size_t to = (from + 1 + random() % (kAccounts - 1)) % kAccounts;
    const auto amount = static_cast<std::int64_t>(random() % 100 + 1);
    refs.push_back(move.Remote(actors_->accounts[from], actors_->accounts[to], amount, file_));
    actors_->balances[from] -= amount;
    actors_->balances[to] += amount;
  }
  {
    const std::lock_guard lock(mutex_);
    tally_.tasks += refs.size();
    tally_.calls += 2 * refs.size();
  }
  for (const manta::Ref<int>& ref : refs) static_cast<void>(ref.Get());
}

void Load::CheckCounters() {
  for (std::size_t i = 0; i < kCounters; ++i) {
    std::map<std::int64_t, int> seen;
    for (const std::int64_t value : actors_->answers[i]) ++seen[value];
    std::uint64_t twice = 0;
    for (const auto& [value, count] : seen) twice += static_cast<std::uint64_t>(count - 1);
    const std::string name = "counter " + std::to_string(i);
    if (twice > 0) Note(&Tally::duplicated, twice, name + " gave " + std::to_string(twice) + " answers twice");
    const auto asked = static_cast<std::int64_t>(actors_->asked[i]);
    const std::int64_t last = actors_->counters[i].Task(&Counter::Next).Remote().Get();
    if (last > asked + 1) {
      Note(&Tally::duplicated, static_cast<std::uint64_t>(last - asked - 1),
           name + " counts " + std::to_string(last - 1) + " calls; " + std::to_string(asked) + " were made");
    }
    if (last < asked + 1) {
      Note(&Tally::lost, static_cast<std::uint64_t>(asked + 1 - last),
           name + " counts " + std::to_string(last - 1) + " calls; " + std::to_string(asked) + " were made");
    }
  }
}

void Load::CheckLedger() {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kAccounts; ++i) {
    const std::int64_t balance = actors_->accounts[i].Task(&Account::Balance).Remote().Get();
    sum += balance;
    if (balance == actors_->balances[i]) continue;
    Note(&Tally::wrong, 1,
         "account " + std::to_string(i) + " has " + std::to_string(balance) + "; it should be " +
             std::to_string(actors_->balances[i]));
  }
  if (sum != static_cast<std::int64_t>(kAccounts) * kStartBalance) {
    Note(&Tally::wrong, 1, "money was made or lost: " + std::to_string(sum));
  }
}

Tally Load::Finish() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  try {
    CheckCounters();
    CheckLedger();
  } catch (const std::exception& error) {
    Note(&Tally::lost, 1, std::string("at the end: ") + error.what());
  }
  return tally_;
}

std::vector<int> Load::ActorPids() {
  std::vector<int> pids;
  for (manta::ActorHandle<Counter>& counter : actors_->counters) {
    try {
      pids.push_back(counter.Task(&Counter::Pid).Remote().Get(std::chrono::seconds(1)));
    } catch (const manta::Error&) {
      // On its way somewhere else: not one to be killed now.
    }
  }
  return pids;
}

}  // namespace chaos
