// A node whose connection to the head is slow, goes silent, or breaks in the middle of a message (fault_proxy.h).
#include <map>
#include <memory>

#include "cluster_fixture.h"
#include "fault_proxy.h"

namespace manta::testing {
namespace {

std::string WhereAmI(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return CurrentContext().node;
}

class ClusterFaults : public ClusterFixture {
 protected:
  // n1 beside the head; n2 behind the proxy.
  void StartBehind(std::uint32_t seed, std::chrono::milliseconds delay) {
    Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
    proxy_ = std::make_unique<FaultProxy>(Head(), seed);
    proxy_->Delay(delay);
    second_ = std::make_unique<Child>(
        "mantad", std::vector<std::string>{"--head-address", proxy_->address(), "--secrets", secrets_, "--name", "n2",
                                           "--cpus", "1", "--resource", "gold=8", "--store-bytes", "67108864"});
    ASSERT_TRUE(Eventually([&] { return Row("n2").find("alive") != std::string::npos; }, 20s)) << second_->Err();
    Init();
  }
  void TearDown() override {
    Shutdown();
    if (second_) kill(second_->pid(), SIGTERM);
    if (second_) second_->Finish(10s);
    second_.reset();
    proxy_.reset();
    ClusterFixture::TearDown();
  }
  std::string Row(const std::string& node) {
    for (const std::string& line : Lines(Manta({"nodes", "--all"}))) {
      if (line.find(" " + node + " ") != std::string::npos) return line;
    }
    return {};
  }
  static std::vector<Ref<std::string>> Submit(int count) {
    std::vector<Ref<std::string>> refs;
    for (int i = 0; i < count; ++i) refs.push_back(Task(WhereAmI).Remote(10));
    return refs;
  }

  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<Child> second_;
};

TEST_F(ClusterFaults, ANodeBehindASlowLinkIsNotGivenUpAndRunsItsTasks) {
  StartBehind(7, 40ms);
  const std::vector<Ref<std::string>> refs = Submit(60);
  EXPECT_EQ(Task(WhereAmI).SetResource("gold", 1).Remote(0).Get(30s), "n2");
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get(30s).empty());
  EXPECT_THAT(Row("n2"), ::testing::HasSubstr("alive"));
  EXPECT_GT(proxy_->bytes(), 1000U);
}

TEST_F(ClusterFaults, AConnectionThatBreaksInTheMiddleOfAMessageCostsTheNodeAndNoTask) {
  StartBehind(1, 2ms);
  const std::vector<Ref<std::string>> refs = Submit(60);
  proxy_->CutSoon();
  EXPECT_TRUE(Eventually([&] { return proxy_->cuts() > 0; }));
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get(60s).empty());
  // It finds out that it was given up, and ends what it runs.
  EXPECT_TRUE(Eventually([&] { return second_->Ended(); }, 20s));
  EXPECT_TRUE(Eventually([&] { return Row("n2").find("dead") != std::string::npos; }, 20s)) << Row("n2");
}

TEST_F(ClusterFaults, ANodeFromWhichNothingComesAnyMoreIsGivenUpAndEndsByItself) {
  StartBehind(3, 0ms);
  const std::vector<Ref<std::string>> refs = Submit(60);
  proxy_->Swallow(true);
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get(60s).empty());
  EXPECT_TRUE(Eventually([&] { return Row("n2").find("dead") != std::string::npos; }, 20s)) << Row("n2");
  EXPECT_TRUE(Eventually([&] { return second_->Ended(); }, 20s));
}

}  // namespace
}  // namespace manta::testing
