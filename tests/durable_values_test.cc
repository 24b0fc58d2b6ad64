// Durable values of a cluster's jobs are in its control store, and go when their job does, however it ends. Looks into
// the store itself.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/loop.h"
#include "cluster_fixture.h"
#include "wire/control_client.h"
#include "wire/secrets.h"

namespace manta::testing {
namespace {

using Block = std::vector<std::uint64_t>;

Ref<Block> PutThere(std::uint64_t seed) { return Put(Block(700'000, seed), {.durable = true}); }  // two parts

class DurableValuesTest : public ClusterFixture {
 protected:
  // Names of what has to do with durable values.
  std::vector<std::string> Kept() {
    Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(secrets_);
    EXPECT_TRUE(secrets.ok());
    Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
    wire::ControlClient client(**loop, wire::ConnectOverTcp(**loop, Head(), *secrets));
    std::vector<std::string> keys;
    bool done = false;
    client.ScanAll(wire::Table::kObjects, "durable", [&](Result<std::vector<wire::ControlEntry>> rows) {
      done = true;
      EXPECT_TRUE(rows.ok()) << rows.status().message();
      if (!rows.ok()) return;
      for (const wire::ControlEntry& row : *rows) keys.push_back(row.key);
    });
    while (!done) (*loop)->RunOnce(-1);
    return keys;
  }
  void StartTwo() {
    Start({"--head", "--listen", "127.0.0.1:0", "--name", "n1", "--cpus", "1", "--resource", "copper=1"});
    Start({"--join", Head(), "--name", "n2", "--cpus", "1", "--resource", "gold=1"});
  }
};

TEST_F(DurableValuesTest, GoWithTheirJob) {
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  Init();
  const Ref<Block> here = PutThere(1);
  const Ref<Block> there = Task(PutThere).SetResource("gold", 1).Remote(2).Get();
  EXPECT_EQ(here.Get(), Block(700'000, 1));
  EXPECT_EQ(there.Get(), Block(700'000, 2));
  EXPECT_EQ(Kept().size(), 7U);  // of each a name and two parts; and whose they are
  Shutdown();
  EXPECT_TRUE(Eventually([&] { return Kept().empty(); }, 20s)) << Kept().front();
}

TEST(DISABLED_OtherDriver, PutsHereAndThere) {
  Config config;
  config.address = std::getenv("MANTA_TEST_ADDRESS");
  Init(config);
  const Ref<Block> here = PutThere(4);
  const Ref<Block> there = Task(PutThere).SetResource("copper", 1).Remote(5).Get();
  std::printf("put\n");
  std::fflush(stdout);
  for (;;) std::this_thread::sleep_for(1s);
}

TEST_F(DurableValuesTest, GoWithTheNodeOfTheirDriver) {
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  // A driver of n2, which dies with it. Another one's values stay.
  Init();
  const Ref<Block> other = PutThere(3);
  EXPECT_EQ(Kept().size(), 4U);
  Child driver("/proc/self/exe", {"--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_OtherDriver.*"},
               {"MANTA_TEST_ADDRESS=@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", "n2"))});
  ASSERT_TRUE(driver.Says("put", 30s)) << driver.Out() << driver.Err();
  EXPECT_EQ(Kept().size(), 4U + 7U);
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Kept().size() == 4; }, 30s)) << Kept().size();
  EXPECT_EQ(other.Get(), Block(700'000, 3));
  kill(driver.pid(), SIGKILL);
  driver.Finish();
}

}  // namespace
}  // namespace manta::testing
