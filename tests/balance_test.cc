// Work is balanced: one slow task never holds up quick ones behind it while another worker is idle.
#include "fixture.h"

namespace manta::testing {
namespace {

class Balance : public ClusterTest {};

struct Finish {
  int pid = 0;
  std::int64_t end = 0;
};

Finish Quick() { return {getpid(), Now()}; }

Finish Slow(const std::string& path) {
  Sign::Await(path);
  return {getpid(), Now()};
}

Finish Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return {getpid(), Now()};
}

TEST_F(Balance, QuickTasksBehindASlowOneDoNotWaitForIt) {
  const Sign go;
  Ref<Finish> slow = Task(Slow).Remote(go.path());
  std::vector<Ref<Finish>> quick;
  for (int i = 0; i < 5'000; ++i) quick.push_back(Task(Quick).Remote());
  // The slow one ends only after every quick one has: whoever waits behind it waits for ever.
  const std::vector<Finish> runs = Get(quick, 20s);
  go.Give();
  const int slow_pid = slow.Get().pid;
  for (const Finish& run : runs) ASSERT_NE(run.pid, slow_pid);
}

TEST_F(Balance, FiveThousandNoOpsBehindA20MsTaskFinishBeforeIt) {
  for (int i = 0; i < 4; ++i)
    Get(std::vector<Ref<Finish>>{Task(Sleep).Remote(2), Task(Sleep).Remote(2)});  // two workers are up
  int before = 0;
  for (int round = 0; round < 5 && before < 4'500; ++round) {  // a busy machine may spoil a round
    Ref<Finish> slow = Task(Sleep).Remote(20 * kSlow);
    std::vector<Ref<Finish>> quick;
    for (int i = 0; i < 5'000; ++i) quick.push_back(Task(Quick).Remote());
    const std::int64_t end = slow.Get().end;
    before = 0;
    for (const Finish& run : Get(quick)) before += run.end < end;
  }
  EXPECT_GE(before, 4'500);
}

TEST_F(Balance, BothWorkersTakePart) {
  std::map<int, int> by_pid;
  std::vector<Ref<Finish>> refs;
  for (int i = 0; i < 40; ++i) refs.push_back(Task(Sleep).Remote(5));
  for (const Finish& run : Get(refs)) ++by_pid[run.pid];
  ASSERT_EQ(by_pid.size(), 2U);
  for (const auto& [pid, count] : by_pid) EXPECT_GE(count, 10) << "of 40 tasks of 5 ms, worker " << pid;
}

TEST_F(Balance, TwoSubmittersShareTheWorkers) {
  // A nested owner with a long queue does not starve the driver.
  const Sign started;
  Ref<int> flood = Task([](const std::string& path) {
                     std::vector<Ref<Finish>> refs;
                     for (int i = 0; i < 300; ++i) refs.push_back(Task(Sleep).Remote(5));
                     Sign::Give(path);
                     return static_cast<int>(Get(refs).size());
                   }).Remote(started.path());
  ASSERT_TRUE(started.Await());
  const std::int64_t mine = Task(Quick).Remote().Get(20s).end;
  EXPECT_EQ(flood.Get(30s), 300);
  EXPECT_GT(Now() - mine, 50'000'000) << "the driver's task waited for most of the flood";
}

TEST_F(Balance, ASlowTaskOfAnotherClassDoesNotHoldUpTheRest) {
  const Sign go;
  Ref<Finish> slow = Task(Slow).SetCpus(0.5).Remote(go.path());
  std::vector<Ref<Finish>> quick;
  for (int i = 0; i < 1'000; ++i) quick.push_back(Task(Quick).SetCpus(i % 2 == 0 ? 1 : 0.25).Remote());
  EXPECT_EQ(Get(quick, 20s).size(), 1'000U);
  go.Give();
  slow.Get();
}

}  // namespace
}  // namespace manta::testing
