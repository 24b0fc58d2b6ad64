#include "load.h"

#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "board.h"
#include "harness.h"

namespace chaos {
namespace {

using std::chrono::milliseconds;
using Value = std::vector<std::uint64_t>;
using bench::Execution;
using Kind = Execution::Kind;

constexpr std::size_t kWords = 4096;  // 32 KB: in a node's store, and lost with it
constexpr std::uint64_t kChains = 4;
constexpr int kSteps = 12;
constexpr int kDepth = 4;
constexpr std::size_t kCallers = 3;
constexpr std::size_t kAhead = 10;  // calls that a caller has on their way
constexpr std::int64_t kStartBalance = 1'000'000;
constexpr int kTransfers = 8;
// What takes longer hangs: no fault lasts a tenth of it.
constexpr std::chrono::seconds kPatience(90);

enum class Where { kHome, kAway, kAny };
struct Sort {
  Where where;
  bool saved;  // has checkpoints
  bool detached = false;
};
constexpr Sort kSorts[] = {{Where::kHome, false},      {Where::kHome, true},      {Where::kAway, false},
                           {Where::kAway, true},       {Where::kAny, false},      {Where::kAny, true},
                           {Where::kAway, true, true}, {Where::kAny, false, true}};
constexpr std::size_t kCounters = std::size(kSorts);
constexpr std::size_t kAccounts = std::size(kSorts);

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

// What all actors here have: the board, and whether they are saved.
struct Member {
  std::string file;
  bool saved = false;
  [[nodiscard]] Execution Begin() const { return {file, saved ? Kind::kSavedCall : Kind::kCall}; }
};

class Counter {
 public:
  Counter() = default;
  Counter(std::string file, bool saved) : member_{std::move(file), saved} {}
  std::int64_t Next() {
    const Execution execution = member_.Begin();
    std::this_thread::sleep_for(milliseconds(1));
    return ++value_;
  }
  int Pid() const { return ::getpid(); }

  std::int64_t Save() const { return value_; }
  void Load(std::int64_t value) { value_ = value; }

 private:
  Member member_;
  std::int64_t value_ = 0;
};

class Account {
 public:
  Account() = default;
  Account(std::string file, bool saved, std::int64_t balance) : member_{std::move(file), saved}, balance_(balance) {}
  std::int64_t Add(std::int64_t amount) {
    const Execution execution = member_.Begin();
    ++adds_;
    return balance_ += amount;
  }
  // Its balance, and how often it was changed.
  std::pair<std::int64_t, std::int64_t> Look() const { return {balance_, adds_}; }

  std::pair<std::int64_t, std::int64_t> Save() const { return Look(); }
  void Load(std::pair<std::int64_t, std::int64_t> saved) { std::tie(balance_, adds_) = saved; }

 private:
  Member member_;
  std::int64_t balance_ = 0;
  std::int64_t adds_ = 0;
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

// The same by an actor: when it comes back and repeats its calls, the accounts are asked again, and do not move.
class Teller {
 public:
  Teller() = default;
  Teller(std::string file, bool saved) : member_{std::move(file), saved} {}
  std::int64_t Pay(AccountHandle from, AccountHandle to, std::int64_t amount) {
    const Execution execution = member_.Begin();
    const manta::Ref<std::int64_t> taken = from.Task(&Account::Add).Remote(-amount);
    static_cast<void>(to.Task(&Account::Add).Remote(amount).Get());
    static_cast<void>(taken.Get());
    return ++paid_;
  }

  std::int64_t Save() const { return paid_; }
  void Load(std::int64_t paid) { paid_ = paid; }

 private:
  Member member_;
  std::int64_t paid_ = 0;
};

template <typename C, typename... A>
manta::ActorHandle<C> Make(const Sort& sort, const std::string& home, const A&... more) {
  auto creator = manta::Actor<C>();
  creator.SetCpus(0);
  if (sort.detached) creator.SetDetached();
  if (sort.where == Where::kHome) creator.OnNode(home);
  if (sort.where == Where::kAway) creator.SetResource(kAway, 1).Spread();
  if (sort.where == Where::kAny) creator.Spread();
  if (sort.saved) creator.CheckpointEvery(kCheckpointEvery);
  return creator.Remote(more...);
}

template <typename T>
T Await(const manta::Ref<T>& ref) {
  return ref.Get(kPatience);
}

thread_local double t_answered = 0;     // when this thread got something
thread_local std::string t_kind = "?";  // of work

}  // namespace

const std::uint64_t kTasksUnderWay = kChains * kSteps + (2U << kDepth) + kTransfers;

struct Load::Actors {
  std::vector<manta::ActorHandle<Counter>> counters;
  std::vector<AccountHandle> accounts;
  std::vector<manta::ActorHandle<Teller>> tellers;
  std::vector<Sort> teller_sorts;
  std::vector<std::int64_t> paid;                  // by teller
  std::mutex mutex;                                // guards what follows
  std::vector<std::vector<std::int64_t>> answers;  // by counter
  std::vector<std::uint64_t> asked;                // by counter
  std::vector<std::int64_t> balances;              // of accounts, as they should be
  std::vector<std::int64_t> adds;                  // and how often they should have changed

  // One transfer of the plan, and the sorts of the two accounts.
  struct Transfer {
    std::size_t from;
    std::size_t to;
    std::int64_t amount;
    std::uint64_t saved_calls;
  };
  Transfer Plan(std::mt19937_64& random) {
    Transfer plan{};
    plan.from = random() % kAccounts;
    plan.to = (plan.from + 1 + random() % (kAccounts - 1)) % kAccounts;
    plan.amount = static_cast<std::int64_t>(random() % 100 + 1);
    plan.saved_calls = (kSorts[plan.from].saved ? 1U : 0U) + (kSorts[plan.to].saved ? 1U : 0U);
    const std::lock_guard lock(mutex);
    balances[plan.from] -= plan.amount;
    balances[plan.to] += plan.amount;
    ++adds[plan.from];
    ++adds[plan.to];
    return plan;
  }
};

Load::Load(std::string file, std::uint64_t seed, const std::string& home)
    : file_(std::move(file)), seed_(seed), actors_(std::make_unique<Actors>()) {
  for (const Sort& sort : kSorts) {
    actors_->counters.push_back(Make<Counter>(sort, home, file_, sort.saved));
    actors_->accounts.push_back(Make<Account>(sort, home, file_, sort.saved, kStartBalance));
  }
  for (const Sort& sort : {kSorts[1], kSorts[2], kSorts[3]}) {
    actors_->tellers.push_back(Make<Teller>(sort, home, file_, sort.saved));
    actors_->teller_sorts.push_back(sort);
  }
  actors_->paid.resize(actors_->tellers.size());
  actors_->answers.resize(kCounters);
  actors_->asked.resize(kCounters);
  actors_->balances.assign(kAccounts, kStartBalance);
  actors_->adds.assign(kAccounts, 0);
  for (auto& counter : actors_->counters) static_cast<void>(Await(counter.Task(&Counter::Pid).Remote()));
  Start("chains", [this] { Chains(); });
  Start("trees", [this] { Trees(); });
  for (std::size_t caller = 0; caller < kCallers; ++caller) {
    Start("counters", [this, caller] { Count(caller); });
  }
  Start("transfers by tasks", [this] { Transfer(); });
  Start("transfers by actors", [this] { Tell(); });
}

Load::~Load() {
  stop_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Load::Start(const std::string& name, std::function<void()> round) {
  threads_.emplace_back([this, name, round = std::move(round)] {
    t_kind = name;
    t_answered = bench::Now();
    while (!stop_ && !failed_) {
      try {
        round();
      } catch (const std::exception& error) {
        Note(&Tally::lost, 1, name + ": " + error.what());
      }
    }
  });
}

void Load::Note(std::uint64_t Tally::* kind, std::uint64_t count, const std::string& text) {
  failed_ = true;
  const std::lock_guard lock(mutex_);
  tally_.*kind += count;
  const std::string line = text.substr(0, text.find('\n'));
  if (tally_.said.size() < 20 && std::find(tally_.said.begin(), tally_.said.end(), line) == tally_.said.end()) {
    tally_.said.push_back(line);
  }
}

void Load::Made(std::uint64_t Tally::* kind, std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  tally_.*kind += count;
}

void Load::Answered() {
  const double now = bench::Now();
  const double pause = now - std::exchange(t_answered, now);
  const std::lock_guard lock(mutex_);
  if (pause <= tally_.longest_pause) return;
  tally_.longest_pause = pause;
  tally_.pause_of = t_kind;
}

void Load::Chains() {
  auto step = manta::Task(Step);
  step.Spread();
  std::vector<manta::Ref<Value>> ends;
  for (std::uint64_t i = 0; i < kChains; ++i) {
    manta::Ref<Value> end = step.Remote(Value(kWords, seed_ + i), 0, file_);
    for (int at = 1; at < kSteps; ++at) end = step.Remote(end, at, file_);
    ends.push_back(end);
  }
  Made(&Tally::tasks, kChains * kSteps);
  for (std::uint64_t i = 0; i < kChains; ++i) {
    Value expected(kWords, seed_ + i);
    for (int at = 0; at < kSteps; ++at) expected = Mixed(std::move(expected), at);
    if (Await(ends[i]) != expected) Note(&Tally::wrong, 1, "a chain ended with a wrong value");
    Answered();
  }
}

void Load::Trees() {
  const std::uint64_t root = seed_ % 1000 + 1;
  Made(&Tally::tasks, (2U << kDepth) - 1);
  if (Await(manta::Task(Tree).Remote(root, kDepth, file_)) != TreeSum(root, kDepth)) {
    Note(&Tally::wrong, 1, "a tree gave a wrong sum");
  }
  Answered();
}

void Load::Count(std::size_t caller) {
  static thread_local std::size_t round = caller;
  const std::size_t which = ++round % kCounters;
  std::vector<manta::Ref<std::int64_t>> refs;
  {
    const std::lock_guard lock(actors_->mutex);
    actors_->asked[which] += kAhead;
  }
  Made(&Tally::calls, kAhead);
  if (kSorts[which].saved) Made(&Tally::saved_calls, kAhead);
  for (std::size_t i = 0; i < kAhead; ++i) {
    refs.push_back(actors_->counters[which].Task(&Counter::Next).Remote());
  }
  std::int64_t before = 0;
  for (const manta::Ref<std::int64_t>& ref : refs) {
    std::int64_t answer = 0;
    try {
      answer = Await(ref);
    } catch (const std::exception& error) {
      Note(&Tally::lost, 1, "a call of counter " + std::to_string(which) + ": " + error.what());
      continue;
    }
    Answered();
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
  for (int i = 0; i < kTransfers; ++i) {
    const Actors::Transfer plan = actors_->Plan(random);
    refs.push_back(move.Remote(actors_->accounts[plan.from], actors_->accounts[plan.to], plan.amount, file_));
    Made(&Tally::tasks, 1);
    Made(&Tally::calls, 2);
    Made(&Tally::saved_calls, plan.saved_calls);
  }
  for (const manta::Ref<int>& ref : refs) {
    static_cast<void>(Await(ref));
    Answered();
  }
}

void Load::Tell() {
  static thread_local std::mt19937_64 random(seed_ + 1);
  constexpr std::size_t kEach = 3;
  std::vector<manta::Ref<std::int64_t>> refs;
  for (std::size_t i = 0; i < kEach * actors_->tellers.size(); ++i) {
    const std::size_t teller = i % actors_->tellers.size();
    const Actors::Transfer plan = actors_->Plan(random);
    refs.push_back(actors_->tellers[teller]
                       .Task(&Teller::Pay)
                       .Remote(actors_->accounts[plan.from], actors_->accounts[plan.to], plan.amount));
    Made(&Tally::calls, 3);
    Made(&Tally::saved_calls, plan.saved_calls + (actors_->teller_sorts[teller].saved ? 1 : 0));
  }
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const std::size_t teller = i % actors_->tellers.size();
    const std::int64_t expected = ++actors_->paid[teller];
    const std::int64_t answer = Await(refs[i]);
    Answered();
    if (answer == expected) continue;
    Note(answer > expected ? &Tally::duplicated : &Tally::lost, 1,
         "teller " + std::to_string(teller) + " counts " + std::to_string(answer) + " transfers; " +
             std::to_string(expected) + " were asked for");
  }
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
    const std::int64_t last = Await(actors_->counters[i].Task(&Counter::Next).Remote());
    Made(&Tally::calls, 1);
    if (kSorts[i].saved) Made(&Tally::saved_calls, 1);
    if (last == asked + 1) continue;
    Note(last > asked ? &Tally::duplicated : &Tally::lost, static_cast<std::uint64_t>(std::abs(last - asked - 1)),
         name + " counts " + std::to_string(last - 1) + " calls; " + std::to_string(asked) + " were made");
  }
}

void Load::CheckLedger() {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kAccounts; ++i) {
    const auto [balance, adds] = Await(actors_->accounts[i].Task(&Account::Look).Remote());
    sum += balance;
    if (adds != actors_->adds[i]) {
      Note(adds > actors_->adds[i] ? &Tally::duplicated : &Tally::lost,
           static_cast<std::uint64_t>(std::abs(adds - actors_->adds[i])),
           "account " + std::to_string(i) + " was changed " + std::to_string(adds) + " times; it should be " +
               std::to_string(actors_->adds[i]));
    }
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

bool Load::Detached(std::size_t counter) { return kSorts[counter].detached; }

std::size_t Load::AllDetached() {
  const auto each = std::count_if(std::begin(kSorts), std::end(kSorts), [](const Sort& sort) { return sort.detached; });
  return 2 * static_cast<std::size_t>(each);  // counters and accounts
}

std::vector<int> Load::ActorPids() {
  std::vector<int> pids;
  for (manta::ActorHandle<Counter>& counter : actors_->counters) {
    try {
      pids.push_back(counter.Task(&Counter::Pid).Remote().Get(std::chrono::seconds(1)));
    } catch (const manta::Error&) {
      pids.push_back(0);
    }
  }
  return pids;
}

}  // namespace chaos
