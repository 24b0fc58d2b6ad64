#include "rules/actor_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

namespace manta::rules {
namespace {

const Id kJob{0xa, 1};
Id Actor(std::uint64_t n) { return Id{n << 32, 1}; }

ActorPolicy Counter(std::int64_t max_restarts = 0, const std::string& name = "") {
  return ActorPolicy{.class_name = "Counter", .name = name, .max_restarts = max_restarts};
}

Failure Crash() { return Failure{Code::kWorkerCrashed, "signal 11 (SIGSEGV)", {}, {}}; }

// What an action does, in a word or two.
std::string Word(const ActorAction& action) {
  if (std::holds_alternative<RequestLease>(action)) return "request";
  if (std::holds_alternative<CancelLease>(action)) return "cancel";
  if (const auto* stop = std::get_if<StopWorker>(&action)) return stop->force ? "kill" : "stop";
  static const char* const kPhases[] = {"starting", "alive", "restarting", "dead"};
  return kPhases[static_cast<int>(std::get<Notify>(action).phase)];
}

struct Desk {
  // Words of all actions since the last time.
  std::string Said() {
    std::string out;
    for (const ActorAction& action : actions) {
      if (!out.empty()) out += ' ';
      out += Word(action);
    }
    actions.clear();
    return out;
  }
  Id Make(std::uint64_t n, const ActorPolicy& policy) {
    Result<Id> made = table.Create(Actor(n), kJob, policy, &actions);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? *made : Id{};
  }
  Id MakeAlive(std::uint64_t n, const ActorPolicy& policy) {
    const Id id = Make(n, policy);
    EXPECT_TRUE(table.Placed(id));
    table.Ready(id, &actions);
    EXPECT_EQ(Said(), "request alive");
    return id;
  }
  const std::string& Why(const Id& id) const { return table.Get(id)->failure.message; }

  ActorTable table;
  ActorActions actions;
};

TEST(ActorTable, OneOfAHomeThatIsLostGoesOnAsIfItsProcessHadDied) {
  Desk desk;
  ASSERT_TRUE(desk.table.Adopt(Actor(1), kJob, Counter(-1, "bank"), 3, Crash(), &desk.actions).ok());
  EXPECT_EQ(desk.Said(), "restarting request");
  EXPECT_EQ(desk.table.Get(Actor(1))->epoch, 4U);
  EXPECT_EQ(desk.table.Find("bank", "default").value(), Actor(1));
  EXPECT_TRUE(desk.table.Placed(Actor(1)));
  desk.table.Ready(Actor(1), &desk.actions);
  EXPECT_EQ(desk.Said(), "alive");
  EXPECT_FALSE(desk.table.Adopt(Actor(1), kJob, Counter(-1), 3, Crash(), &desk.actions).ok()) << "it is here already";
  EXPECT_FALSE(desk.table.Adopt(Actor(2), kJob, Counter(-1, "bank"), 0, Crash(), &desk.actions).ok());
  // The restarts that it has used count.
  ASSERT_TRUE(desk.table.Adopt(Actor(3), kJob, Counter(3), 3, Crash(), &desk.actions).ok());
  EXPECT_EQ(desk.Said(), "dead");
  EXPECT_EQ(desk.table.living(), 1U);
}

TEST(ActorTable, OneThatMovesElsewhereLeavesItsNameAndNothingBehind) {
  Desk desk;
  const Id id = desk.Make(1, Counter(-1, "bank"));
  EXPECT_TRUE(desk.table.Placed(id));
  desk.table.Ready(id, &desk.actions);
  static_cast<void>(desk.Said());
  desk.table.Moved(id);
  EXPECT_EQ(desk.Said(), "") << "it has not died";
  EXPECT_EQ(desk.table.Get(id), nullptr);
  EXPECT_EQ(desk.table.living(), 0U);
  EXPECT_FALSE(desk.table.Find("bank", "default").ok());
  // It may come back.
  ASSERT_TRUE(desk.table.Adopt(id, kJob, Counter(-1, "bank"), 1, Crash(), &desk.actions).ok());
  EXPECT_EQ(desk.Said(), "restarting request");
}

TEST(ActorTable, AnActorWhoseConstructorNeverBeganIsPlacedAgainAtNoCost) {
  Desk desk;
  const Id id = desk.Make(1, Counter());
  EXPECT_TRUE(desk.table.Placed(id));
  EXPECT_EQ(desk.Said(), "request");
  desk.table.NeverBegan(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "request");
  EXPECT_EQ(desk.table.Get(id)->epoch, 0U);
  desk.table.NeverBegan(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "") << "it waits already";
  EXPECT_TRUE(desk.table.Placed(id));
  desk.table.Ready(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "alive");
  desk.table.NeverBegan(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "") << "it has begun";
  desk.table.Kill(id, false, &desk.actions);
  EXPECT_EQ(desk.Said(), "kill dead");
  desk.table.NeverBegan(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "");
}

TEST(ActorTable, AnActorIsPlacedBuiltAndAlive) {
  Desk desk;
  const Id id = desk.Make(1, Counter());
  EXPECT_EQ(desk.Said(), "request");
  EXPECT_EQ(desk.table.Get(id)->phase, ActorPhase::kStarting);
  EXPECT_TRUE(desk.table.Placed(id));
  EXPECT_FALSE(desk.table.Placed(id)) << "a second lease goes back";
  desk.table.Ready(id, &desk.actions);
  desk.table.Ready(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "alive");
  EXPECT_EQ(desk.table.living(), 1U);
}

TEST(ActorTable, ACrashedActorComesBackAsOftenAsAllowed) {
  Desk desk;
  const Id id = desk.MakeAlive(0x3fa9, Counter(2));
  for (std::uint32_t epoch = 1; epoch <= 2; ++epoch) {
    desk.table.WorkerDied(id, Crash(), &desk.actions);
    EXPECT_EQ(std::get<Notify>(desk.actions.front()).failure.code, Code::kWorkerCrashed) << "it is not dead";
    EXPECT_EQ(desk.Said(), "restarting request");
    EXPECT_EQ(desk.table.Get(id)->epoch, epoch);
    EXPECT_TRUE(desk.table.Placed(id));
    desk.table.Ready(id, &desk.actions);
    EXPECT_EQ(desk.Said(), "alive");
  }
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "dead");
  EXPECT_EQ(desk.table.Get(id)->failure.code, Code::kActorDied);
  EXPECT_EQ(
      desk.Why(id),
      "actor Counter (00003fa9) died: signal 11 (SIGSEGV); restarts used 2 of 2. Raise max_restarts to let it come "
      "back more often.");
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "");
  EXPECT_EQ(desk.table.living(), 0U);
}

TEST(ActorTable, ACrashWithoutRestartsSaysHowToAllowThem) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(0, "bob"));
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(
      desk.Why(id),
      "actor Counter \"bob\" (00000001) died: signal 11 (SIGSEGV); restarts used 0 of 0. Set max_restarts to let it "
      "come back.");
}

TEST(ActorTable, WithoutALimitItAlwaysComesBack) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(-1));
  for (int i = 0; i < 100; ++i) {
    desk.table.WorkerDied(id, Crash(), &desk.actions);
    EXPECT_EQ(desk.Said(), "restarting request");
    EXPECT_TRUE(desk.table.Placed(id));
    desk.table.Ready(id, &desk.actions);
    EXPECT_EQ(desk.Said(), "alive");
  }
  EXPECT_EQ(desk.table.Get(id)->epoch, 100U);
}

TEST(ActorTable, OneThatAlwaysDiesBeforeItIsReadyIsGivenUpWhateverItsLimit) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(-1));
  for (int i = 0; i < kMostFalseRestarts; ++i) {
    desk.table.WorkerDied(id, Crash(), &desk.actions);
    EXPECT_EQ(desk.Said(), "restarting request");
    EXPECT_TRUE(desk.table.Placed(id));
  }
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "dead");
  EXPECT_NE(desk.Why(id).find("10. time in a row"), std::string::npos);
}

TEST(ActorTable, ACrashInTheConstructorIsACrash) {
  Desk desk;
  const Id id = desk.Make(1, Counter(1));
  EXPECT_TRUE(desk.table.Placed(id));
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "request restarting request");
}

TEST(ActorTable, AConstructorThatThrowsIsTheEndAndSaysWhat) {
  Desk desk;
  const Id id = desk.Make(1, Counter(5, "bob"));
  EXPECT_TRUE(desk.table.Placed(id));
  desk.table.ConstructorFailed(id, Failure{Code::kTaskFailed, "std::out_of_range: 7", "std::out_of_range", "7"},
                               &desk.actions);
  EXPECT_EQ(desk.Said(), "request stop dead");
  EXPECT_EQ(
      desk.Why(id),
      "actor Counter \"bob\" (00000001) died: its constructor failed: std::out_of_range: 7; restarts used 0 of 5. Fix "
      "the constructor or its arguments.");
  EXPECT_EQ(desk.table.Get(id)->failure.type, "std::out_of_range");
  EXPECT_FALSE(desk.table.Find("bob", "default").ok());
}

TEST(ActorTable, AKilledActorIsDeadAtOnceWhateverItsRestarts) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(5));
  desk.table.Kill(id, /*restart=*/false, &desk.actions);
  EXPECT_EQ(desk.Said(), "kill dead");
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  desk.table.Kill(id, /*restart=*/false, &desk.actions);
  EXPECT_EQ(desk.Said(), "");
  EXPECT_NE(desk.Why(id).find("killed by Kill()"), std::string::npos);
}

TEST(ActorTable, AKillThatAllowsARestartUsesOneUp) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(1));
  desk.table.Kill(id, /*restart=*/true, &desk.actions);
  desk.table.Kill(id, /*restart=*/true, &desk.actions);
  EXPECT_EQ(desk.Said(), "kill") << "once";
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "restarting request");
  EXPECT_NE(desk.Why(id).find("killed by Kill(restart)"), std::string::npos);
  desk.table.Kill(id, /*restart=*/true, &desk.actions);
  EXPECT_EQ(desk.Said(), "") << "it has no process now";
}

TEST(ActorTable, AnActorKilledBeforeItsWorkerCameCancelsItsLease) {
  Desk desk;
  const Id id = desk.Make(1, Counter());
  desk.table.Kill(id, /*restart=*/false, &desk.actions);
  EXPECT_EQ(desk.Said(), "request cancel dead");
  EXPECT_FALSE(desk.table.Placed(id));
}

TEST(ActorTable, ANameBelongsToOneLivingActorOfANamespace) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(0, "bob"));
  const Result<Id> second = desk.table.Create(Actor(2), kJob, Counter(0, "bob"), &desk.actions);
  EXPECT_EQ(second.status().code(), Code::kInvalid);
  EXPECT_NE(second.status().message().find("(00000001) has that name in namespace \"default\""), std::string::npos)
      << second.status().message();
  ActorPolicy elsewhere = Counter(0, "bob");
  elsewhere.space = "other";
  desk.Make(3, elsewhere);
  EXPECT_EQ(*desk.table.Find("bob", "default"), id);
  EXPECT_EQ(*desk.table.Find("bob", "other"), Actor(3));
  EXPECT_EQ(desk.table.Find("eve", "default").status().code(), Code::kNotFound);
  desk.table.Kill(id, /*restart=*/false, &desk.actions);
  EXPECT_FALSE(desk.table.Find("bob", "default").ok());
  desk.Make(4, Counter(0, "bob"));
}

TEST(ActorTable, GetIfExistsGivesTheOneThatLives) {
  Desk desk;
  ActorPolicy policy = Counter(0, "bob");
  policy.get_if_exists = true;
  EXPECT_EQ(desk.Make(1, policy), Actor(1));
  EXPECT_EQ(desk.Said(), "request");
  EXPECT_EQ(desk.Make(2, policy), Actor(1));
  EXPECT_EQ(desk.Said(), "");
  EXPECT_EQ(desk.table.size(), 1U);
}

TEST(ActorTable, PoliciesThatMakeNoSenseAreInvalid) {
  Desk desk;
  ActorPolicy nameless = Counter();
  nameless.get_if_exists = true;
  EXPECT_EQ(desk.table.Create(Actor(1), kJob, nameless, &desk.actions).status().code(), Code::kInvalid);
  EXPECT_EQ(desk.table.Create(Actor(1), kJob, Counter(-2), &desk.actions).status().code(), Code::kInvalid);
  desk.Make(1, Counter());
  EXPECT_EQ(desk.table.Create(Actor(1), kJob, Counter(), &desk.actions).status().code(), Code::kInvalid);
}

TEST(ActorTable, WithoutHandlesAnActorEndsGentlyAndIsForgotten) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(3, "bob"));
  desk.table.HandlesGone(id, &desk.actions);
  EXPECT_EQ(desk.Said(), "stop dead");
  EXPECT_EQ(desk.table.size(), 0U);
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "");
}

TEST(ActorTable, ADeadActorIsRememberedAsLongAsThereAreHandles) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter());
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  ASSERT_NE(desk.table.Get(id), nullptr);
  desk.table.HandlesGone(id, &desk.actions);
  EXPECT_EQ(desk.table.Get(id), nullptr);
  EXPECT_EQ(desk.Said(), "dead") << "announced once";
}

TEST(ActorTable, ADetachedActorOutlivesItsHandlesAndItsDriver) {
  Desk desk;
  ActorPolicy policy = Counter(0, "bob");
  policy.detached = true;
  const Id id = desk.MakeAlive(1, policy);
  desk.table.HandlesGone(id, &desk.actions);
  desk.table.DriverDied(kJob, &desk.actions);
  EXPECT_EQ(desk.Said(), "");
  EXPECT_EQ(*desk.table.Find("bob", "default"), id);
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_NE(desk.table.Get(id), nullptr) << "whoever found it has a handle";
}

TEST(ActorTable, ADetachedActorWithoutHandlesIsForgottenWhenItDies) {
  Desk desk;
  ActorPolicy policy = Counter(0, "bob");
  policy.detached = true;
  const Id id = desk.MakeAlive(1, policy);
  desk.table.HandlesGone(id, &desk.actions);
  desk.table.WorkerDied(id, Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "dead");
  EXPECT_EQ(desk.table.size(), 0U);
}

TEST(ActorTable, TheActorsOfADeadDriverDie) {
  Desk desk;
  desk.MakeAlive(1, Counter(5));
  desk.Make(2, Counter(5));
  EXPECT_TRUE(desk.table.Create(Actor(3), Id{0xb, 1}, Counter(), &desk.actions).ok());
  (void)desk.Said();
  desk.table.DriverDied(kJob, &desk.actions);
  EXPECT_EQ(desk.actions.size(), 4U) << desk.Said();
  EXPECT_EQ(desk.table.living(), 1U);
  EXPECT_EQ(desk.table.Get(Actor(3))->phase, ActorPhase::kStarting);
}

TEST(ActorTable, OneThatIsLostDoesNotComeBackAndSaysWhy) {
  Desk desk;
  const Id id = desk.MakeAlive(1, Counter(-1, "bank"));
  desk.table.Lost(id, Failure{Code::kCorrupt, "its journal cannot be read", {}, {}}, &desk.actions);
  EXPECT_EQ(desk.Said(), "dead") << "its process is gone already";
  EXPECT_NE(desk.Why(id).find("its journal cannot be read"), std::string::npos) << desk.Why(id);
  EXPECT_FALSE(desk.table.Find("bank", "default").ok());
  desk.table.Lost(id, Crash(), &desk.actions);
  desk.table.Lost(Actor(2), Crash(), &desk.actions);
  EXPECT_EQ(desk.Said(), "");
}

TEST(ActorTable, EventsOfUnknownActorsAreIgnored) {
  Desk desk;
  EXPECT_FALSE(desk.table.Placed(Actor(9)));
  desk.table.Ready(Actor(9), &desk.actions);
  desk.table.ConstructorFailed(Actor(9), Crash(), &desk.actions);
  desk.table.WorkerDied(Actor(9), Crash(), &desk.actions);
  desk.table.Kill(Actor(9), true, &desk.actions);
  desk.table.HandlesGone(Actor(9), &desk.actions);
  desk.table.DriverDied(kJob, &desk.actions);
  EXPECT_EQ(desk.Said(), "");
}

// A daemon in small: it keeps what the actions tell it, and compares.
TEST(ActorTable, KeepsItsPromisesOverManyRandomEvents) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    ActorTable table;
    std::set<Id> requested;  // leases asked for
    std::set<Id> workers;    // processes there are
    std::set<Id> stopped;    // of these, told to end
    std::set<Id> dead;       // announced
    std::uint64_t made = 0;
    for (int step = 0; step < 3000; ++step) {
      ActorActions actions;
      const Id id = Actor(made == 0 ? 1 : 1 + made - below(std::min<std::uint64_t>(made, 12)));
      switch (below(10)) {
        case 0:
        case 1: {
          ActorPolicy policy = Counter(static_cast<std::int64_t>(below(4)) - 1);
          if (below(2) == 0) policy.name = std::string(1, static_cast<char>('a' + below(3)));
          policy.detached = below(4) == 0;
          policy.get_if_exists = !policy.name.empty() && below(2) == 0;
          const bool taken = !policy.name.empty() && table.Find(policy.name, "default").ok();
          const Result<Id> result = table.Create(Actor(++made), Id{below(3), 1}, policy, &actions);
          ASSERT_EQ(result.ok(), !taken || policy.get_if_exists);
          if (result.ok()) {
            ASSERT_EQ(result.value() == Actor(made), !taken);
          }
          break;
        }
        case 2:
        case 3:
          ASSERT_EQ(table.Placed(id), requested.contains(id));
          if (requested.erase(id) == 1) workers.insert(id);
          break;
        case 4:
          if (workers.contains(id)) table.Ready(id, &actions);
          break;
        case 5:
          if (workers.contains(id) && below(4) == 0) table.ConstructorFailed(id, Crash(), &actions);
          break;
        case 6:
          if (workers.erase(id) == 1) {
            stopped.erase(id);
            table.WorkerDied(id, Crash(), &actions);
          }
          break;
        case 7:
          table.Kill(id, below(2) == 0, &actions);
          break;
        case 8:
          if (below(3) == 0) table.HandlesGone(id, &actions);
          break;
        default:
          if (below(30) == 0) table.DriverDied(Id{below(3), 1}, &actions);
      }
      for (const ActorAction& action : actions) {
        if (const auto* request = std::get_if<RequestLease>(&action)) {
          ASSERT_TRUE(requested.insert(request->actor).second);
          ASSERT_FALSE(workers.contains(request->actor));
        } else if (const auto* cancel = std::get_if<CancelLease>(&action)) {
          ASSERT_EQ(requested.erase(cancel->actor), 1U);
        } else if (const auto* stop = std::get_if<StopWorker>(&action)) {
          ASSERT_TRUE(workers.contains(stop->actor));
          ASSERT_TRUE(stopped.insert(stop->actor).second) << "told twice";
        } else {
          const auto& notify = std::get<Notify>(action);
          ASSERT_FALSE(dead.contains(notify.actor)) << "dead is for ever";
          if (notify.phase == ActorPhase::kDead) dead.insert(notify.actor);
          ASSERT_EQ(notify.failure.ok(), notify.phase == ActorPhase::kAlive);
        }
      }
      std::size_t living = 0;
      std::set<std::string> names;
      for (const auto& [actor, state] : table.actors()) {
        ASSERT_EQ(state.phase == ActorPhase::kDead, dead.contains(actor));
        if (state.phase == ActorPhase::kDead) continue;
        ++living;
        ASSERT_NE(state.waits, state.placed);
        ASSERT_EQ(state.waits, requested.contains(actor));
        ASSERT_EQ(state.placed, workers.contains(actor));
        if (state.policy.max_restarts >= 0) {
          ASSERT_LE(static_cast<std::int64_t>(state.epoch), state.policy.max_restarts);
        }
        if (!state.policy.name.empty()) {
          ASSERT_TRUE(names.insert(state.policy.name).second);
          ASSERT_EQ(*table.Find(state.policy.name, "default"), actor);
        }
      }
      ASSERT_EQ(table.living(), living);
    }
  }
}

}  // namespace
}  // namespace manta::rules
