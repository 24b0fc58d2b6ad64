// Detached actors and the nodes that they are at home on: what they are made of is kept at the head, so that they go on
// elsewhere when their home is lost. Calls are under way meanwhile; each counts once, and is answered once, in order.
#include <numeric>

#include "cluster_fixture.h"
#include "wire/control_client.h"
#include "wire/secrets.h"

namespace manta::testing {
namespace {

// Every answer says how many calls there were before.
class Ledger {
 public:
  int Add(int by) {
    sum_ += by;
    return ++calls_;
  }
  std::size_t Take(const std::string& text) {
    ++calls_;
    bytes_ += text.size();
    return bytes_;
  }
  [[nodiscard]] int Calls() const { return calls_; }
  [[nodiscard]] int Sum() const { return sum_; }
  [[nodiscard]] int Pid() const { return getpid(); }
  [[nodiscard]] std::string Node() const { return CurrentContext().node; }
  MANTA_FIELDS(calls_, sum_, bytes_)

 private:
  int calls_ = 0;
  int sum_ = 0;
  std::size_t bytes_ = 0;
};

int CallsByName(const std::string& name) { return GetActor<Ledger>(name).Task(&Ledger::Calls).Remote().Get(60s); }

class Detached : public ClusterFixture {
 protected:
  // The first is the oldest: where detached actors are at home.
  void StartHead(const std::string& resource = "silver=1") {
    Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1", "--resource", resource});
  }
  void StartNode(const std::string& name, const std::string& resource) {
    Start({"--join", Head(), "--cpus", "1", "--name", name, "--resource", resource});
  }
  void InitOn(const std::string& node) {
    Config config;
    config.address = "@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", node));
    Init(config);
  }
  void KillNode(const std::string& name) const {
    const pid_t node = PidOf("node", name);
    ASSERT_GT(node, 0);
    kill(node, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !Alive(node); }));
  }
  // What the head has of detached actors under names that begin so.
  void Damage(const std::string& names) const {
    const std::unique_ptr<base::Loop> loop = std::move(*base::Loop::Create());
    wire::ControlClient client(*loop, wire::ConnectOverTcp(*loop, Head(), *wire::Secrets::Open(secrets_)));
    int under_way = 1;
    client.ScanAll(wire::Table::kActors, names, [&](Result<std::vector<wire::ControlEntry>> rows) {
      ASSERT_TRUE(rows.ok()) << rows.status().message();
      ASSERT_FALSE(rows->empty());
      for (const wire::ControlEntry& row : *rows) {
        ++under_way;
        client.Put(wire::Table::kActors, row.key, "x", [&](const Result<wire::ControlWritten>& put) {
          EXPECT_TRUE(put.ok()) << put.status().message();
          --under_way;
        });
      }
      --under_way;
    });
    while (under_way > 0 && !HasFatalFailure()) loop->RunOnce(-1);
  }
  // Calls that are under way while `breaks` does its work; then it has counted all of them.
  static void CallWhile(const ActorHandle<Ledger>& ledger, const std::function<void()>& breaks) {
    const int before = ledger.Task(&Ledger::Calls).Remote().Get(60s);
    std::vector<Ref<int>> refs;
    for (int i = 0; i < 200; ++i) refs.push_back(ledger.Task(&Ledger::Add).Remote(1));
    EXPECT_EQ(refs[20].Get(60s), before + 21);
    breaks();
    for (int i = 0; i < 200; ++i) refs.push_back(ledger.Task(&Ledger::Add).Remote(1));
    for (int i = 0; i < 400; ++i) ASSERT_EQ(refs[static_cast<std::size_t>(i)].Get(60s), before + i + 1);
    EXPECT_EQ(ledger.Task(&Ledger::Calls).Remote().Get(60s), before + 400);
  }
};

TEST_F(Detached, OneThatRunsAtHomeGoesOnElsewhereWhenThatNodeIsKilled) {
  StartHead("gold=1");
  StartNode("n2", "iron=1");
  InitOn("n2");
  auto ledger = Actor<Ledger>().SetName("stays").SetDetached().SetResource("gold", 1).Remote();
  ASSERT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n1");
  StartNode("n3", "gold=1");
  CallWhile(ledger, [&] { KillNode("n1"); });
  EXPECT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n3");
  EXPECT_EQ(Task(CallsByName).Remote("stays").Get(60s), 400);
  // Its end is an end, here as anywhere.
  const int pid = ledger.Task(&Ledger::Pid).Remote().Get(60s);
  Kill(ledger);
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }, 20s));
  EXPECT_TRUE(Eventually(
      [] {
        try {
          GetActor<Ledger>("stays");
          return false;
        } catch (const NotFoundError&) {
          return true;
        }
      },
      20s));
}

TEST_F(Detached, OneThatRunsElsewhereGoesOnWhenItsHomeIsKilledAndThenTheNext) {
  StartHead();
  StartNode("n2", "iron=1");
  StartNode("n3", "gold=1");
  InitOn("n3");
  auto ledger = Actor<Ledger>().SetDetached().SetResource("gold", 1).CheckpointEvery(10).Remote();
  ASSERT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n3");
  CallWhile(ledger, [&] { KillNode("n1"); });
  CallWhile(ledger, [&] { KillNode("n2"); });  // now it is at home where it runs, and its caller is
  CallWhile(ledger, [&] { kill(ledger.Task(&Ledger::Pid).Remote().Get(60s), SIGKILL); });
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(60s), 1200);
}

TEST_F(Detached, OneIsThereAfterItsHomeAndTheHeadWereKilledTogether) {
  StartHead();
  StartNode("n2", "gold=1");
  StartNode("n3", "gold=1");
  InitOn("n3");
  auto ledger = Actor<Ledger>().SetName("stays").SetDetached().SetResource("gold", 1).Remote();
  CallWhile(ledger, [&] {
    KillHead();
    KillNode("n1");
    ASSERT_NE(Manta({"start", "--head"}), "");
  });
  EXPECT_EQ(GetActor<Ledger>("stays").Task(&Ledger::Calls).Remote().Get(60s), 400);
}

TEST_F(Detached, OneWaitsForANodeWhenAllAreGone) {
  StartHead();
  InitOn("n1");
  auto ledger = Actor<Ledger>().SetName("stays").SetDetached().Remote();
  for (int i = 0; i < 20; ++i) ledger.Task(&Ledger::Add).Remote(i).Get(60s);
  Shutdown();
  KillNode("n1");
  StartNode("n2", "gold=1");
  InitOn("n2");
  ActorHandle<Ledger> found;
  ASSERT_TRUE(Eventually(
      [&] {
        try {
          found = GetActor<Ledger>("stays");
          return true;
        } catch (const Error&) {
          return false;
        }
      },
      60s));
  EXPECT_EQ(found.Task(&Ledger::Add).Remote(0).Get(60s), 21);
  EXPECT_EQ(found.Task(&Ledger::Sum).Remote().Get(60s), 190);
}

TEST_F(Detached, ANodeThatIsStoppedInOrderLeavesThemToTheNext) {
  StartHead("gold=1");
  StartNode("n2", "iron=1");
  InitOn("n2");
  auto ledger = Actor<Ledger>().SetDetached().SetResource("gold", 1).Remote();
  ASSERT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n1");
  StartNode("n3", "gold=1");
  CallWhile(ledger, [&] { kill(PidOf("node", "n1"), SIGTERM); });
  EXPECT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n3");
}

TEST_F(Detached, ANodeThatIsDrainedMovesThemToTheNextHomeAndThenLeaves) {
  StartHead("gold=2");
  StartNode("n2", "iron=1");
  InitOn("n2");
  auto here = Actor<Ledger>().SetName("stays").SetDetached().SetResource("gold", 1).Remote();
  ASSERT_EQ(here.Task(&Ledger::Node).Remote().Get(60s), "n1");
  auto away = Actor<Ledger>().SetDetached().SetResource("iron", 1).CheckpointEvery(10).Remote();
  ASSERT_EQ(away.Task(&Ledger::Node).Remote().Get(60s), "n2");
  StartNode("n3", "gold=1");
  CallWhile(here, [&] {
    CallWhile(away, [&] {
      Manta({"drain", "n1", "--timeout", "60"});
      EXPECT_EQ(Manta({"nodes"}).find("n1 "), std::string::npos);
    });
  });
  EXPECT_EQ(here.Task(&Ledger::Node).Remote().Get(60s), "n3");
  EXPECT_EQ(away.Task(&Ledger::Node).Remote().Get(60s), "n2");
  EXPECT_EQ(Task(CallsByName).Remote("stays").Get(60s), 400);
  // And from there, by whoever has found it since.
  CallWhile(away, [&] { kill(PidOf("node", "n3"), SIGKILL); });
}

TEST_F(Detached, OneOfWhichTheHeadCannotReadWhatItHasEndsWithItsDrainedHome) {
  StartHead("gold=1");
  StartNode("n2", "gold=1");
  InitOn("n2");
  auto ledger = Actor<Ledger>().SetDetached().OnNode("n1", true).Remote();
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(60s), 1);
  Damage("journal/");
  Manta({"drain", "n1", "--timeout", "60"});
  try {
    ledger.Task(&Ledger::Add).Remote(1).Get(60s);
    ADD_FAILURE() << "it came back, without what it did";
  } catch (const ActorDiedError& error) {
    EXPECT_NE(std::string(error.what()).find("it does not decode"), std::string::npos) << error.what();
  }
}

// A driver keeps its node, but not the actors of others: it goes on calling them.
TEST_F(Detached, TheyLeaveADrainedNodeAlsoWhenADriverStays) {
  StartHead();
  InitOn("n1");
  auto ledger = Actor<Ledger>().SetName("stays").SetDetached().SetCpus(0).Remote();
  ASSERT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n1");
  StartNode("n2", "gold=1");
  CallWhile(ledger, [&] {
    std::string errors;
    Manta({"drain", "n1", "--timeout", "0.1"}, &errors);
    EXPECT_NE(errors, "") << "its driver is still there";
    EXPECT_TRUE(Eventually([&] { return ledger.Task(&Ledger::Node).Remote().Get(60s) == "n2"; }, 60s));
  });
  EXPECT_EQ(CallsByName("stays"), 400);
  Kill(ledger);
  EXPECT_TRUE(Eventually(
      [&] {
        try {
          ledger.Task(&Ledger::Calls).Remote().Get(60s);
          return false;
        } catch (const ActorDiedError&) {
          return true;
        }
      },
      20s));
}

TEST_F(Detached, OneThatNoOtherNodeCanHaveIsLeftAloneUntilOneCan) {
  StartHead("gold=1");
  StartNode("n2", "iron=1");
  InitOn("n2");
  auto ledger = Actor<Ledger>().SetDetached().SetResource("gold", 1).Remote();
  const int pid = ledger.Task(&Ledger::Pid).Remote().Get(60s);
  std::string errors;
  Manta({"drain", "n1", "--timeout", "0.5"}, &errors);
  EXPECT_NE(errors, "");
  CallWhile(ledger, [] {});
  EXPECT_EQ(ledger.Task(&Ledger::Pid).Remote().Get(60s), pid);
  CallWhile(ledger, [&] {
    StartNode("n3", "gold=1");
    Manta({"drain", "n1", "--timeout", "60"}, &errors);  // it drains since the first, and may have left
  });
  EXPECT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n3");
}

TEST_F(Detached, ItsHomeAndTheNextMayBeKilledOneRightAfterTheOther) {
  StartHead();
  StartNode("n2", "iron=1");
  StartNode("n3", "iron=1");
  StartNode("n4", "gold=1");
  InitOn("n4");
  auto ledger = Actor<Ledger>().SetDetached().SetResource("gold", 1).CheckpointEvery(30).Remote();
  ASSERT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n4");
  CallWhile(ledger, [&] {
    kill(PidOf("node", "n1"), SIGKILL);
    kill(PidOf("node", "n2"), SIGKILL);
  });
  // The next is home by now, and its next is the one where it runs.
  CallWhile(ledger, [&] { KillNode("n3"); });
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(60s), 800);
}

// More than is kept of it at once: now and then only what it is now is kept.
TEST_F(Detached, WhatIsKeptOfOneDoesNotGrowWithItsAge) {
  StartHead();
  StartNode("n2", "gold=1");
  InitOn("n2");
  auto ledger = Actor<Ledger>().SetDetached().SetResource("gold", 1).CheckpointEvery(5).Remote();
  const std::string text(256U << 10, 'x');
  std::vector<Ref<std::size_t>> refs;
  constexpr std::size_t kCalls = 120;  // 30 MB
  for (std::size_t i = 0; i < kCalls; ++i) refs.push_back(ledger.Task(&Ledger::Take).Remote(text));
  for (std::size_t i = 0; i < kCalls; ++i) ASSERT_EQ(refs[i].Get(60s), (i + 1) * text.size());
  KillNode("n1");
  EXPECT_EQ(ledger.Task(&Ledger::Take).Remote(text).Get(60s), (kCalls + 1) * text.size());
  EXPECT_EQ(ledger.Task(&Ledger::Calls).Remote().Get(60s), static_cast<int>(kCalls) + 1);
}

// One that may not come back does not.
TEST_F(Detached, OneThatMayNotRestartEndsWithItsHome) {
  StartHead("gold=1");
  StartNode("n2", "iron=1");
  InitOn("n2");
  auto ledger = Actor<Ledger>().SetName("goes").SetDetached().SetMaxRestarts(0).SetResource("gold", 1).Remote();
  ASSERT_EQ(ledger.Task(&Ledger::Node).Remote().Get(60s), "n1");
  KillNode("n1");
  EXPECT_THROW(ledger.Task(&Ledger::Add).Remote(1).Get(60s), ActorDiedError);
  EXPECT_TRUE(Eventually(
      [] {
        try {
          GetActor<Ledger>("goes");
          return false;
        } catch (const NotFoundError&) {
          return true;
        }
      },
      20s));
}

}  // namespace
}  // namespace manta::testing
