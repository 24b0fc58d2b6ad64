#include "rules/actor_replay.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace manta::rules {
namespace {

using Verdict = ActorReplay::Verdict;
using Next = ActorReplay::Next;

ReplayCall Called(std::uint64_t number) {
  ReplayCall call;
  call.id = Id{number, 1};
  call.digest = number * 7;
  return call;
}
ReplayCall Again(std::uint64_t number) {
  ReplayCall call = Called(number);
  call.rerun = true;
  return call;
}

TEST(ActorReplay, NothingIsLookedUpUntilSomebodySaysThatItCallsAgain) {
  ActorReplay replay({}, 0);
  std::uint64_t place = 0;
  EXPECT_FALSE(replay.NeedsIndex(Called(1)));
  EXPECT_EQ(replay.Arrive(Called(1), &place), Verdict::kRun);
  EXPECT_TRUE(replay.NeedsIndex(Again(1)));
  replay.Remember(Id{1, 1}, 7, 99);
  replay.Indexed();
  EXPECT_EQ(replay.Arrive(Again(1), &place), Verdict::kAnswer);
  EXPECT_EQ(place, 99U);
  EXPECT_EQ(replay.Arrive(Called(1), &place), Verdict::kAnswer) << "the first copy may come late";
  EXPECT_EQ(replay.Arrive(Again(2), &place), Verdict::kRun);
}

TEST(ActorReplay, TheSameIdWithOtherArgumentsIsFoundOut) {
  ActorReplay replay({.actor = "Counter (12)"}, 0);
  replay.Remember(Id{1, 1}, 7, 0);
  replay.Indexed();
  ReplayCall other = Again(1);
  other.digest = 8;
  std::uint64_t place = 0;
  EXPECT_EQ(replay.Arrive(other, &place), Verdict::kDiffers);
  const Failure failure = replay.Differs(other.id, "Counter::Add");
  EXPECT_NE(failure.message.find("Counter (12)"), std::string::npos);
  EXPECT_NE(failure.message.find("Counter::Add"), std::string::npos);
  other.comparable = false;  // places and processes stand in it
  EXPECT_EQ(replay.Arrive(other, &place), Verdict::kAnswer);
}

TEST(ActorReplay, ACallThatMayNotBeBegunTwiceIsAnsweredOrRefusedAndNeverRun) {
  ActorReplay replay({}, 0);
  replay.Remember(Id{1, 1}, 7, 0);
  replay.Indexed();
  std::uint64_t place = 0;
  for (const std::uint64_t number : {1, 2}) {
    ReplayCall call = Again(number);
    call.once = true;
    EXPECT_EQ(replay.Arrive(call, &place), number == 1 ? Verdict::kAnswer : Verdict::kRun) << "it did not die in it";
    call.begun = true;
    EXPECT_EQ(replay.Arrive(call, &place), number == 1 ? Verdict::kAnswer : Verdict::kRefuse);
    call.once = false;
    EXPECT_EQ(replay.Arrive(call, &place), number == 1 ? Verdict::kAnswer : Verdict::kRun);
  }
  EXPECT_EQ(replay.Refused(Id{2, 1}).type, kNotBegunAgain);
}

TEST(ActorReplay, WhatIsToRunAgainOrChangesNothingAlwaysRuns) {
  ActorReplay replay({}, 0);
  replay.Remember(Id{1, 1}, 7, 0);
  replay.Indexed();
  std::uint64_t place = 0;
  ReplayCall fresh = Called(1);
  fresh.fresh = true;
  EXPECT_EQ(replay.Arrive(fresh, &place), Verdict::kRun);
  ReplayCall reads = Again(1);
  reads.read_only = true;
  EXPECT_EQ(replay.Arrive(reads, &place), Verdict::kRun);
}

TEST(ActorReplay, ACheckpointIsDueByCallsByTimeAndBySize) {
  ActorReplay by_calls({.actor = "A", .can_save = true, .every_calls = 3}, 0);
  EXPECT_EQ(by_calls.Ran(100, 0), Next::kNothing);
  EXPECT_EQ(by_calls.Ran(100, 0), Next::kNothing);
  EXPECT_EQ(by_calls.Ran(100, 0), Next::kCheckpoint);
  by_calls.Checkpointed(10, 0);
  EXPECT_EQ(by_calls.Ran(100, 0), Next::kNothing);
  by_calls.Restored(10, 200, 2);
  EXPECT_EQ(by_calls.Ran(100, 0), Next::kCheckpoint) << "calls that were repeated count";

  ActorReplay by_time({.actor = "A", .can_save = true, .every_us = 50}, 1000);
  EXPECT_TRUE(by_time.timed());
  EXPECT_EQ(by_time.Ran(100, 1049), Next::kNothing);
  EXPECT_EQ(by_time.Ran(100, 1050), Next::kCheckpoint);
  by_time.Checkpointed(10, 1060);
  EXPECT_EQ(by_time.Ran(100, 1100), Next::kNothing);

  ActorReplay by_size({.actor = "A", .can_save = true, .tidy_bytes = 1000, .most_bytes = 100'000}, 0);
  EXPECT_EQ(by_size.Ran(999, 0), Next::kNothing);
  EXPECT_EQ(by_size.Ran(1, 0), Next::kCheckpoint);
  by_size.Checkpointed(500, 0);
  EXPECT_EQ(by_size.Ran(3999, 0), Next::kNothing) << "a large state is saved less often";
  EXPECT_EQ(by_size.Ran(1, 0), Next::kCheckpoint);
}

TEST(ActorReplay, WithoutCheckpointsTooManyCallsAreGivenUp) {
  ActorReplay replay({.actor = "Blob (7)", .every_calls = 1, .most_bytes = 1000}, 0);
  EXPECT_EQ(replay.Ran(999, 0), Next::kNothing) << "it cannot be saved";
  EXPECT_EQ(replay.Ran(1, 0), Next::kGiveUp);
  EXPECT_EQ(replay.Ran(1, 0), Next::kNothing) << "once";
  EXPECT_NE(replay.TooMuch(2).message.find("Blob (7)"), std::string::npos);
}

TEST(ActorReplay, AStateThatCannotBeSavedNowIsTriedAgainAndGivenUpInTheEnd) {
  ActorReplay replay({.actor = "A", .can_save = true, .every_calls = 1, .most_bytes = 100'000}, 0);
  std::uint64_t tries = 0;
  for (int i = 0; i < 99; ++i) {
    const Next next = replay.Ran(1000, 0);
    ASSERT_NE(next, Next::kGiveUp);
    if (next != Next::kCheckpoint) continue;
    ++tries;
    replay.CannotSave();
  }
  EXPECT_GT(tries, 2U);
  EXPECT_LT(tries, 12U) << "not at every call";
  EXPECT_EQ(replay.Ran(1000, 0), Next::kCheckpoint);
  replay.CannotSave();
  EXPECT_EQ(replay.Ran(1000, 0), Next::kGiveUp);
}

TEST(ActorReplay, AnotherAnswerThanBeforeNamesActorMethodAndCall) {
  ActorReplay replay({.actor = "Counter (12)"}, 0);
  EXPECT_TRUE(replay.Replayed({Id{1, 1}, "Counter::Add", 5, false, 5, false}).ok());
  const Failure other = replay.Replayed({Id{0xabcdef, 1}, "Counter::Time", 5, false, 6, false});
  EXPECT_EQ(other.code, Code::kActorDied);
  EXPECT_NE(other.message.find("Counter (12)"), std::string::npos);
  EXPECT_NE(other.message.find("Counter::Time"), std::string::npos);
  EXPECT_NE(other.message.find(ToString(Id{0xabcdef, 1})), std::string::npos);
  EXPECT_FALSE(replay.Replayed({Id{1, 1}, "Counter::Add", 5, false, 5, true}).ok());
  EXPECT_EQ(replay.replayed(), 3U);
}

// An actor, its journal and its callers, one step at a time, with deaths wherever one can happen. The actor adds
// numbers; what it answers is the sum.
class World {
 public:
  World(unsigned seed, std::uint64_t every_calls) : random_(seed), every_calls_(every_calls) {
    for (std::uint64_t c = 0; c < kCallers; ++c) callers_.push_back({});
    Start();
  }

  void Run() {
    for (int step = 0; step < 100'000 && !Over(); ++step) Step();
    ASSERT_TRUE(Over());
    std::set<std::uint64_t> seen;
    for (const std::uint64_t number : effects_) ASSERT_TRUE(seen.insert(number).second) << "twice: " << number;
    ASSERT_EQ(seen.size(), kCallers * kCalls);
    ASSERT_GT(deaths_, 0);
    if (every_calls_ != 0) {
      ASSERT_LE(most_replayed_, every_calls_);
    }
  }

 private:
  static constexpr std::uint64_t kCallers = 3;
  static constexpr std::uint64_t kCalls = 40;

  struct Caller {
    std::uint64_t sent = 0;
    std::uint64_t answered = 0;  // in order
    std::deque<ReplayCall> queue;
  };
  struct Record {
    ReplayCall call;
    std::uint64_t answer = 0;
  };
  struct Journal {
    std::optional<std::vector<std::uint64_t>> state;  // the effects so far
    std::vector<Record> records;
    std::vector<Record> answers;  // the place is the index
  };

  bool Chance(unsigned of) { return random_() % of == 0; }
  bool Over() const {
    for (const Caller& caller : callers_) {
      if (caller.answered < kCalls) return false;
    }
    return true;
  }

  std::uint64_t Act(const ReplayCall& call) {
    effects_.push_back(call.id.hi);
    std::uint64_t sum = 0;
    for (const std::uint64_t number : effects_) sum = sum * 31 + number;
    return sum;
  }

  void Start() {
    effects_ = journal_.state.value_or(std::vector<std::uint64_t>());
    replay_ = ActorReplay({.actor = "A", .can_save = every_calls_ != 0, .every_calls = every_calls_}, 0);
    replay_.Restored(0, 0, journal_.records.size());
    if (!journal_.state && journal_.records.empty()) return;
    for (std::size_t i = 0; i < journal_.answers.size(); ++i) {
      replay_.Remember(journal_.answers[i].call.id, journal_.answers[i].call.digest, i);
    }
    replay_.Indexed();
    for (const Record& record : journal_.records) {
      const std::uint64_t answer = Act(record.call);
      ASSERT_TRUE(replay_.Replayed({record.call.id, "Act", record.answer, false, answer, false}).ok());
      if (!replay_.Knows(record.call.id)) Keep({record.call, answer});
    }
    most_replayed_ = std::max(most_replayed_, replay_.replayed());
    if (replay_.Recovered(0) == Next::kCheckpoint) Save();
  }

  void Save() {
    journal_.state = effects_;
    journal_.records.clear();
    replay_.Checkpointed(0, 0);
  }

  void Keep(const Record& record) {
    journal_.answers.push_back(record);
    if (replay_.indexed()) replay_.Remember(record.call.id, record.call.digest, journal_.answers.size() - 1);
  }

  void Die() {
    ++deaths_;
    // Everybody sends again what was not answered; some of it is still in the queue, too, as a dead caller's would be.
    for (Caller& caller : callers_) {
      std::deque<ReplayCall> again;
      for (std::uint64_t i = caller.answered; i < caller.sent; ++i) {
        ReplayCall call = Numbered(static_cast<std::uint64_t>(&caller - callers_.data()), i);
        call.rerun = true;
        again.push_back(call);
        if (Chance(8)) again.push_back(call);
      }
      caller.queue = again;
    }
    Start();
  }

  static ReplayCall Numbered(std::uint64_t caller, std::uint64_t i) { return Called(1 + caller * 1000 + i); }

  void Answer(std::uint64_t number, std::uint64_t answer) {
    Caller& caller = callers_[(number - 1) / 1000];
    const std::uint64_t i = (number - 1) % 1000;
    const auto known = answers_.emplace(number, answer);
    ASSERT_EQ(known.first->second, answer) << "another answer than the first";
    if (i < caller.answered) return;  // a second copy's
    ASSERT_EQ(i, caller.answered) << "out of order";
    ++caller.answered;
  }

  void Step() {
    Caller& caller = callers_[random_() % kCallers];
    if (caller.sent < kCalls && Chance(2)) {
      caller.queue.push_back(Numbered(static_cast<std::uint64_t>(&caller - callers_.data()), caller.sent++));
      return;
    }
    if (caller.queue.empty()) return;
    const ReplayCall call = caller.queue.front();
    if (Chance(50)) return Die();  // before
    caller.queue.pop_front();
    if (replay_.NeedsIndex(call)) {
      for (std::size_t i = 0; i < journal_.answers.size(); ++i) {
        replay_.Remember(journal_.answers[i].call.id, journal_.answers[i].call.digest, i);
      }
      replay_.Indexed();
    }
    std::uint64_t place = 0;
    const Verdict verdict = replay_.Arrive(call, &place);
    if (verdict == Verdict::kAnswer) return Answer(call.id.hi, journal_.answers[place].answer);
    ASSERT_EQ(verdict, Verdict::kRun);
    const std::uint64_t answer = Act(call);
    if (Chance(50)) return Die();  // it has acted, and nobody knows
    journal_.records.push_back({call, answer});
    if (Chance(50)) return Die();  // recorded, and not answered
    Keep({call, answer});
    if (Chance(50)) return Die();
    Answer(call.id.hi, answer);
    if (replay_.Ran(100, 0) != Next::kCheckpoint) return;
    if (Chance(20)) return Die();
    Save();
  }

  std::minstd_rand random_;
  const std::uint64_t every_calls_;
  ActorReplay replay_;
  Journal journal_;
  std::vector<std::uint64_t> effects_;  // of the process that lives
  std::vector<Caller> callers_;
  std::map<std::uint64_t, std::uint64_t> answers_;
  int deaths_ = 0;
  std::uint64_t most_replayed_ = 0;
};

TEST(ActorReplay, WhateverDiesWhenEveryCallCountsOnceAndIsAnsweredOnceInOrder) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    World(seed, 0).Run();
    World(seed, 1 + seed % 12).Run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace manta::rules
