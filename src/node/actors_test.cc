#include "node/actors.h"

#include <algorithm>

#include "node/test_node.h"

namespace manta::node {
namespace {

class ActorsTest : public NodeTest {
 protected:
  static wire::CreateActor Make(std::uint64_t id, const std::string& spec = "") {
    wire::CreateActor message;
    message.actor = Id{id, 9};
    message.options.class_name = "Counter";
    message.spec = spec;
    return message;
  }
  // The next state of that phase.
  static std::optional<wire::ActorState> AwaitPhase(TestClient& client, wire::ActorPhase phase) {
    for (;;) {
      std::optional<wire::ActorState> state = client.Await<wire::ActorState>();
      if (!state.has_value() || state->phase == phase) return state;
    }
  }
  static wire::AttachActor Attach(const Id& actor, std::uint32_t restarts = 0) {
    return {actor, shm::kChunksOffset, shm::kChunksOffset, 0, restarts};
  }
};

TEST_F(ActorsTest, AnActorIsCreatedAndComesAlive) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Make(1), 5);
  const auto created = driver->Await<wire::ActorCreated>();
  ASSERT_TRUE(created.has_value());
  EXPECT_EQ(created->actor, (Id{1, 9}));
  const auto alive = AwaitPhase(*driver, wire::ActorPhase::kAlive);
  ASSERT_TRUE(alive.has_value());
  EXPECT_NE(alive->worker, kNoProcess);
}

TEST_F(ActorsTest, ACallerIsIntroducedNowOrWhenTheActorRuns) {
  Start(1);
  const auto driver = Driver(1);
  const auto other = Driver(2);
  driver->Send(Make(1), 5);
  driver->Send(Attach(Id{1, 9}));
  driver->AwaitLine(Cat("caller ", driver->welcome.process));
  // Late: told at once whom to ring.
  other->Send(Attach(Id{1, 9}));
  const auto alive = AwaitPhase(*other, wire::ActorPhase::kAlive);
  ASSERT_TRUE(alive.has_value());
  EXPECT_NE(alive->worker, kNoProcess);
  driver->AwaitLine(Cat("caller ", other->welcome.process));
}

TEST_F(ActorsTest, WhatCanNeverRunIsNotCreated) {
  Start(1);
  const auto driver = Driver();
  wire::CreateActor message = Make(1);
  message.options.need.Set("GPU", kUnit);
  driver->Send(message, 5);
  const auto failed = driver->Await<wire::Failed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure.code, Code::kInfeasible);
  EXPECT_NE(failed->failure.message.find("Counter"), std::string::npos) << failed->failure.message;
}

TEST_F(ActorsTest, ANameBelongsToOneActor) {
  Start(1);
  const auto driver = Driver();
  wire::CreateActor message = Make(1);
  message.options.name = "bank";
  driver->Send(message, 5);
  ASSERT_TRUE(driver->Await<wire::ActorCreated>().has_value());
  message.actor = Id{2, 9};
  driver->Send(message, 6);
  ASSERT_TRUE(driver->Await<wire::Failed>().has_value());
  message.options.get_if_exists = true;
  driver->Send(message, 7);
  const auto same = driver->Await<wire::ActorCreated>();
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->actor, (Id{1, 9}));
  driver->Send(wire::FindActor{"bank", "default"}, 8);
  const auto found = driver->Await<wire::ActorFound>();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->actor, (Id{1, 9}));
  EXPECT_EQ(found->options.class_name, "Counter");
  driver->Send(wire::FindActor{"nobody", "default"}, 9);
  const auto failed = driver->Await<wire::Failed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure.code, Code::kNotFound);
}

TEST_F(ActorsTest, AConstructorThatThrowsKillsTheActorWithItsReason) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Make(1, "throw"), 5);
  const auto dead = AwaitPhase(*driver, wire::ActorPhase::kDead);
  ASSERT_TRUE(dead.has_value());
  EXPECT_NE(dead->failure.message.find("the constructor threw"), std::string::npos) << dead->failure.message;
}

TEST_F(ActorsTest, ACrashedActorComesBackAsOftenAsItMay) {
  Start(1);
  const auto driver = Driver();
  wire::CreateActor message = Make(1, "crash once");
  message.options.max_restarts = 1;
  driver->Send(message, 5);
  driver->Send(Attach(Id{1, 9}));
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kRestarting).has_value());
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
  driver->Send(wire::KillActor{Id{1, 9}, true});
  const auto dead = AwaitPhase(*driver, wire::ActorPhase::kDead);
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->failure.code, Code::kActorDied);
}

// The actor's next process would serve a queue that the caller makes anew when it hears of the restart.
TEST_F(ActorsTest, ACallerThatHasYetToHearOfARestartIsNotIntroduced) {
  Start(1);
  const auto driver = Driver(1);
  const auto other = Driver(2);
  wire::CreateActor message = Make(1);
  message.options.max_restarts = 1;
  driver->Send(message, 5);
  driver->Send(Attach(Id{1, 9}));
  const std::string introduced = Cat("caller ", driver->welcome.process);
  driver->AwaitLine(introduced);
  driver->Send(wire::KillActor{Id{1, 9}, true});
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kRestarting).has_value());
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
  driver->Send(Attach(Id{1, 9}, 0));  // as if it had not come that far
  ASSERT_TRUE(driver->AwaitStatus([](const auto&) { return true; }));
  other->Send(Attach(Id{1, 9}));
  const auto count = [&](const std::vector<wire::LogLine>& lines) {
    return std::count_if(lines.begin(), lines.end(), [&](const auto& line) { return line.text == introduced; });
  };
  EXPECT_EQ(count(driver->AwaitLine(Cat("caller ", other->welcome.process))), 1);
  driver->Send(Attach(Id{1, 9}, 1));
  driver->lines.clear();
  EXPECT_EQ(count(driver->AwaitLine(introduced)), 1);
}

TEST_F(ActorsTest, ACrashSaysWhichSignal) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Make(1, "crash"), 5);
  const auto dead = AwaitPhase(*driver, wire::ActorPhase::kDead);
  ASSERT_TRUE(dead.has_value());
  EXPECT_NE(dead->failure.message.find("SIGSEGV"), std::string::npos) << dead->failure.message;
  EXPECT_NE(dead->failure.message.find("about to crash"), std::string::npos) << dead->failure.message;
}

TEST_F(ActorsTest, AWorkerLostBeforeTheConstructorBeganIsNoDeathOfTheActor) {
  Start(1);
  const auto driver = Driver(1);
  const std::string file = testing::TempDir() + "/manta-false-start-" + std::to_string(getpid());
  driver->Send(Make(1, std::string(fixture::kFalseStart) + file), 5);
  const auto alive = driver->Await<wire::ActorState>();
  ASSERT_TRUE(alive.has_value());
  EXPECT_EQ(alive->phase, wire::ActorPhase::kAlive) << alive->failure.message;
  EXPECT_EQ(unlink(file.c_str()), 0) << "nobody died";
}

TEST_F(ActorsTest, AnActorWhoseConstructorNeverBeginsIsGivenUp) {
  Start(1);
  const auto driver = Driver(1);
  driver->Send(Make(1, "never begins"), 5);
  EXPECT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kDead).has_value());
}

TEST_F(ActorsTest, AttachingToADeadOrUnknownActorIsAnsweredAtOnce) {
  Start(1);
  const auto driver = Driver(1);
  const auto other = Driver(2);
  driver->Send(Make(1, "throw"), 5);
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kDead).has_value());
  other->Send(Attach(Id{1, 9}));
  EXPECT_TRUE(AwaitPhase(*other, wire::ActorPhase::kDead).has_value());
  other->Send(Attach(Id{77, 9}));
  EXPECT_TRUE(AwaitPhase(*other, wire::ActorPhase::kDead).has_value());
}

TEST_F(ActorsTest, AnActorWithoutHandlesEndsAndGivesItsResourcesBack) {
  Start(1);
  const auto driver = Driver();
  wire::CreateActor message = Make(1);
  message.options.need.Set("CPU", kUnit);
  driver->Send(message, 5);
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
  driver->Send(Ask(1, 1));
  EXPECT_FALSE(driver->Has(wire::Kind::kLeaseGranted));
  driver->Send(wire::Drop{{Id{1, 9}}, {1}});
  EXPECT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
}

TEST_F(ActorsTest, AnActorThatWaitsForResourcesStartsWhenTheyAreFree) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kPlain));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  wire::CreateActor message = Make(1);
  message.options.need.Set("CPU", kUnit);
  driver->Send(message, 5);
  EXPECT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
}

TEST_F(ActorsTest, KillIsForGood) {
  Start(1);
  const auto driver = Driver();
  wire::CreateActor message = Make(1);
  message.options.max_restarts = -1;
  driver->Send(message, 5);
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
  driver->Send(wire::KillActor{Id{1, 9}, false});
  ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kDead).has_value());
  EXPECT_TRUE(driver->AwaitStatus([](const wire::StatusReply& status) { return status.actors == 0; }));
}

TEST_F(ActorsTest, ADetachedActorOutlivesItsDriverAndOthersDoNot) {
  Start(2);
  const auto other = Driver(2);
  {
    const auto driver = Driver(1);
    wire::CreateActor message = Make(1);
    message.options.detached = true;
    message.options.name = "stays";
    driver->Send(message, 5);
    ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
    message = Make(2);
    message.options.name = "goes";
    driver->Send(message, 6);
    ASSERT_TRUE(AwaitPhase(*driver, wire::ActorPhase::kAlive).has_value());
    driver->Send(wire::Goodbye{}, 7);
    ASSERT_TRUE(driver->Await<wire::Done>().has_value());
  }
  EXPECT_TRUE(other->AwaitStatus([](const wire::StatusReply& status) { return status.drivers == 1; }));
  other->Send(wire::FindActor{"goes", "default"}, 8);
  EXPECT_TRUE(other->Await<wire::Failed>().has_value());
  other->Send(wire::FindActor{"stays", "default"}, 9);
  const auto found = other->Await<wire::ActorFound>();
  ASSERT_TRUE(found.has_value());
  other->Send(Attach(found->actor));
  EXPECT_TRUE(AwaitPhase(*other, wire::ActorPhase::kAlive).has_value());
  // It comes back, too, though its driver is gone: its fork server was kept. (Restarts were not asked for: it dies.)
  other->Send(wire::KillActor{found->actor, false});
  EXPECT_TRUE(AwaitPhase(*other, wire::ActorPhase::kDead).has_value());
}

TEST_F(ActorsTest, WordsAboutActorsFromThoseWhoAreNoneAreIgnored) {
  Start(1);
  const auto driver = Driver();
  driver->Send(wire::ActorReady{Id{1, 9}});
  driver->Send(wire::ActorFailed{Id{1, 9}, Failure{Code::kTaskFailed, "no", {}, {}}});
  driver->Send(wire::KillActor{Id{1, 9}, false});
  driver->Send(wire::LeaseReturn{3});
  driver->Send(wire::Blocked{0});
  driver->Send(wire::Unblock{0}, 4);
  EXPECT_TRUE(driver->Await<wire::Failed>().has_value());
}

}  // namespace
}  // namespace manta::node
