// Durable values of a cluster's jobs are in its control store, and go when their job does, however it ends. Looks into
// the store itself.
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
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
  // One who looks into the store.
  struct Looker {
    explicit Looker(const DurableValuesTest& test)
        : loop(std::move(*base::Loop::Create())),
          client(*loop, wire::ConnectOverTcp(*loop, test.Head(), *wire::Secrets::Open(test.secrets_))) {}
    std::unique_ptr<base::Loop> loop;
    wire::ControlClient client;
  };
  // Names of what begins so in the table of objects.
  std::vector<std::string> Kept(const std::string& prefix = "durable") {
    Looker looker(*this);
    std::vector<std::string> keys;
    bool done = false;
    looker.client.ScanAll(wire::Table::kObjects, prefix, [&](Result<std::vector<wire::ControlEntry>> rows) {
      done = true;
      EXPECT_TRUE(rows.ok()) << rows.status().message();
      if (!rows.ok()) return;
      for (const wire::ControlEntry& row : *rows) keys.push_back(row.key);
    });
    while (!done) looker.loop->RunOnce(-1);
    return keys;
  }
  // Puts it there from outside.
  Status PutKey(Looker& looker, const std::string& key, const std::string& value) {
    std::optional<Status> answer;
    looker.client.Put(wire::Table::kObjects, key, value,
                      [&](const Result<wire::ControlWritten>& written) { answer = written.status(); });
    while (!answer) looker.loop->RunOnce(-1);
    return *answer;
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

// More jobs than a page of the table has. They are written down as their drivers would have.
TEST_F(DurableValuesTest, OfAllJobsGoWithTheirNodeHoweverManyThereAre) {
  constexpr int kJobs = 1200;
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  {
    Looker looker(*this);
    int left = 2 * kJobs;
    const auto put = [&](const std::string& key) {
      looker.client.Put(wire::Table::kObjects, key, "1", [&](const Result<wire::ControlWritten>& written) {
        EXPECT_TRUE(written.ok()) << written.status().message();
        --left;
      });
    };
    for (int i = 0; i < kJobs; ++i) {
      char job[33];
      std::snprintf(job, sizeof job, "%032x", i);
      put(std::string("durable-of/2/") + job);
      put(std::string("durable/") + job + "/0");
    }
    while (left > 0) looker.loop->RunOnce(-1);
  }
  ASSERT_EQ(Kept().size(), 2U * kJobs);
  kill(PidOf("node", "n2"), SIGKILL);
  // The head that began with it may die meanwhile.
  ASSERT_TRUE(Eventually([&] { return Kept().size() < 2U * kJobs; }, 30s));
  KillHead();
  ASSERT_NE(Manta({"start", "--head"}), "");
  EXPECT_TRUE(Eventually([&] { return Kept().empty(); }, 60s)) << Kept().size() << " are left: " << Kept().front();
}

// The tables on a file system of 8 MiB, if we may mount one.
class FullControlStore : public DurableValuesTest {
 protected:
  void SetUp() override {
    DurableValuesTest::SetUp();
    store_ = secrets_ + "/control";
    mkdir(secrets_.c_str(), 0700);
    mkdir(store_.c_str(), 0700);
    mounted_ = mount("tmpfs", store_.c_str(), "tmpfs", 0, "size=8m,mode=0700") == 0;
  }
  void TearDown() override {
    Shutdown();
    Manta({"stop"});
    if (mounted_) {
      EXPECT_TRUE(Eventually([&] { return umount(store_.c_str()) == 0; })) << "somebody still holds a file there";
    }
    DurableValuesTest::TearDown();
  }
  void Fill() const {
    std::ofstream file(store_ + "/filler", std::ios::binary);
    const std::string block(4096, 'f');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  std::string store_;
  bool mounted_ = false;
};

Block MakeBlock(std::uint64_t seed) { return Block(50'000, seed); }
Ref<Block> PutLess(std::uint64_t seed) { return Put(Block(50'000, seed), {.durable = true}); }  // 400 KB

TEST_F(FullControlStore, IsAnErrorWithTheNumbersAndLosesNothingAndPasses) {
  if (!mounted_) GTEST_SKIP() << "needs the right to mount a tmpfs";
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  Init();
  const Ref<Block> before = Task(PutLess).SetResource("gold", 1).Remote(1).Get();
  Looker looker(*this);
  std::vector<std::string> acknowledged;
  std::vector<std::string> refused;
  const auto put_key = [&] {
    const std::string key = "key-" + std::to_string(acknowledged.size() + refused.size());
    Status status = PutKey(looker, key, std::string(20'000, 'v'));
    (status.ok() ? acknowledged : refused).push_back(key);
    return status;
  };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(put_key().ok());
  Fill();
  // What was written ahead in the log is used up first.
  Status why;
  while (why.ok() && acknowledged.size() < 200) why = put_key();
  EXPECT_EQ(why.code(), Code::kIo) << why.message();
  for (const char* part : {"cannot write 19.", "No space left on device (", " free of 8.0 MiB)", "make room"}) {
    EXPECT_THAT(why.message(), ::testing::HasSubstr(part));
  }
  try {
    PutLess(2);
    ADD_FAILURE() << "there is no room for it";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Put: the value (390.7 KiB) is not durable: cannot write"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(" free of 8.0 MiB)"));
  }
  // What needs no room goes on: tasks, values that are not durable, and reading.
  EXPECT_EQ(Task(MakeBlock).SetResource("gold", 1).Remote(4).Get(), Block(50'000, 4));
  EXPECT_EQ(before.Get(), Block(50'000, 1));
  std::filesystem::remove(store_ + "/filler");
  const Ref<Block> after = Task(PutLess).SetResource("gold", 1).Remote(3).Get();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(put_key().ok());
  // The disk is what counts: neither the head nor the node that had the values is there any more.
  KillHead();
  ASSERT_NE(Manta({"start", "--head"}), "");
  std::vector<std::string> kept = Kept("key-");
  std::sort(acknowledged.begin(), acknowledged.end());
  EXPECT_EQ(kept, acknowledged);
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_EQ(before.Get(), Block(50'000, 1));
  EXPECT_EQ(after.Get(), Block(50'000, 3));
}

}  // namespace
}  // namespace manta::testing
