// Tuning runs on real workers: the walkthrough of doc/tune.md, trials that fail, workers and drivers that are killed.
#include "manta/tune.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "fixture.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t Lines(const std::string& path) {
  const std::string text = TextOf(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

int Load(const std::string& folder) {
  int step = 0;
  std::ifstream(folder + "/step") >> step;
  return step;
}

std::string Save(const std::string& folder, int step) {
  std::ofstream(folder + "/step") << step;
  return folder;
}

double Loss(double lr, int step) { return std::fabs(std::log10(lr) + 2) + 1.0 / (step + 1); }

void Train(tune::Trial& trial) {
  const auto lr = trial.Get<double>("lr");
  for (int i = trial.Restored() ? Load(trial.CheckpointFolder()) : 0; i < 12; ++i)
    trial.Report({{"loss", Loss(lr, i)}}, trial.Every(4) ? Save(trial.NewFolder(), i + 1) : tune::kNoCheckpoint);
}

class TuneTest : public ClusterTest {
 protected:
  tune::Tuner Run(tune::Tuner::Function train) {
    tune::Tuner tuner(train);
    tuner.Space({{"lr", tune::LogUniform(1e-4, 1)}, {"act", tune::Choice({"relu", "tanh"})}})
        .Minimize("loss")
        .StorageFolder(storage_.path())
        .Name("run")
        .Verbose(0);
    return tuner;
  }
  Folder storage_;
};

TEST_F(TuneTest, TheWalkthroughFindsTheBestTrialAndWritesItsFiles) {
  const tune::Results all =
      Run(Train).Search(tune::Random{.seed = 7}).Schedule(tune::Asha{.max_t = 12}).Samples(8).Run();
  ASSERT_EQ(all.size(), 8U);
  EXPECT_EQ(all.reason().reason, tune::EndReason::kComplete);
  double best = 1e9;
  for (const tune::Result& result : all) {
    EXPECT_EQ(result.state, "TERMINATED");
    best = std::min(best, std::get<double>(result.metrics.at("loss")));
    EXPECT_EQ(Lines(result.folder + "/result.json"), static_cast<std::size_t>(result.iteration));
    EXPECT_EQ(Lines(result.folder + "/progress.csv"), static_cast<std::size_t>(result.iteration) + 1);
    EXPECT_NE(TextOf(result.folder + "/params.json").find("\"lr\""), std::string::npos);
  }
  EXPECT_EQ(std::get<double>(all.Best().metrics.at("loss")), best);
  EXPECT_TRUE(fs::is_directory(all.Best().checkpoint)) << all.Best().checkpoint;
  EXPECT_NE(all.Best().Describe().find("lr="), std::string::npos);
}

void Throwing(tune::Trial& trial) {
  trial.Report({{"loss", 1.0}});
  if (trial.number() == 1) throw std::runtime_error("loss is nan");
}

TEST_F(TuneTest, ATrialThatThrowsEndsInErrorAndTheOthersGoOn) {
  const tune::Results all = Run(Throwing).Samples(3).Run();
  EXPECT_EQ(all.Errors(), 1U);
  EXPECT_EQ(all[1].state, "ERROR");
  EXPECT_EQ(all[1].error, "std::runtime_error: loss is nan");
  EXPECT_EQ(TextOf(all[1].folder + "/error.txt"), "std::runtime_error: loss is nan\n");
  EXPECT_EQ(all[2].state, "TERMINATED");
}

void OnceBroken(tune::Trial& trial) {
  const int begin = trial.Restored() ? Load(trial.CheckpointFolder()) : 0;
  for (int i = begin; i < 6; ++i) {
    trial.Report({{"loss", 1.0 / (i + 1)}, {"begin", begin}},
                 trial.Every(2) ? Save(trial.NewFolder(), i + 1) : tune::kNoCheckpoint);
    if (i == 3 && begin == 0) std::abort();
  }
}

TEST_F(TuneTest, ATrialThatCrashesIsRetriedFromItsCheckpointAsOftenAsMaxFailuresAllows) {
  const tune::Results all = Run(OnceBroken).MaxFailures(1).Samples(1).Schedule(tune::Fifo{}).Run();
  EXPECT_EQ(all[0].state, "TERMINATED");
  EXPECT_EQ(all[0].iteration, 6);
  EXPECT_EQ(std::get<std::int64_t>(all[0].metrics.at("begin")), 4);
  EXPECT_EQ(Lines(all[0].folder + "/result.json"), 6U);
}

TEST_F(TuneTest, WithoutRetriesACrashNamesItsSignal) {
  const tune::Results all = Run(OnceBroken).Samples(1).Schedule(tune::Fifo{}).Run();
  EXPECT_EQ(all[0].state, "ERROR");
  EXPECT_NE(all[0].error.find("SIGABRT"), std::string::npos) << all[0].error;
}

void KilledOnce(tune::Trial& trial) {
  const int begin = trial.Restored() ? Load(trial.CheckpointFolder()) : 0;
  for (int i = begin; i < 6; ++i) {
    trial.Report({{"loss", 1.0 / (i + 1)}}, trial.Every(2) ? Save(trial.NewFolder(), i + 1) : tune::kNoCheckpoint);
    if (i == 3 && begin == 0) raise(SIGKILL);
  }
}

TEST_F(TuneTest, AKilledWorkerIsNoFailure) {
  const tune::Results all = Run(KilledOnce).Samples(2).Schedule(tune::Fifo{}).Run();
  EXPECT_EQ(all.Errors(), 0U) << all[0].error;
  EXPECT_EQ(all[0].iteration, 6);
  EXPECT_EQ(Lines(all[1].folder + "/result.json"), 6U);
}

void WrongMetric(tune::Trial& trial) { trial.Report({{"accuracy", 0.5}, {"losses", 1.0}}); }

TEST_F(TuneTest, AMetricThatNeverAppearsIsOneErrorThatSuggestsTheName) {
  try {
    (void)Run(WrongMetric).Samples(3).MaxConcurrent(1).Run();
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "metric \"loss\" is not in the result of trial 0; it has: accuracy, losses. Did you mean losses?");
  }
}

TEST_F(TuneTest, ATrialThatNeedsMoreThanTheClusterIsRefusedWithTheAmounts) {
  tune::TrialResources resources;
  resources.bundles = {{{"CPU", 64}}};
  try {
    (void)Run(Train).Resources(resources).Run();
    FAIL() << "no error";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("one needs 64 CPU, the cluster has 2 CPU"));
  }
}

class Counter : public tune::Trainable {
 public:
  void Setup(const tune::Config& config) override { rate_ = std::get<double>(config.at("lr")); }
  tune::Metrics Step() override {
    value_ += rate_;
    return {{"loss", -value_}, {"done", ++steps_ >= 8}};
  }
  void SaveCheckpoint(const std::string& folder) override {
    std::ofstream(folder + "/state") << steps_ << " " << value_;
  }
  void LoadCheckpoint(const std::string& folder) override { std::ifstream(folder + "/state") >> steps_ >> value_; }

 private:
  double rate_ = 0;
  double value_ = 0;
  int steps_ = 0;
};

TEST_F(TuneTest, AClassIsSavedAtItsFrequencyAndAtItsEnd) {
  tune::Tuner tuner = tune::Tuner::Of<Counter>();
  const tune::Results all = tuner.Space({{"lr", tune::Uniform(0, 1)}})
                                .Minimize("loss")
                                .StorageFolder(storage_.path())
                                .Samples(2)
                                .CheckpointFrequency(3)
                                .CheckpointAtEnd()
                                .KeepCheckpoints(2)
                                .Verbose(0)
                                .Run();
  for (const tune::Result& result : all) {
    EXPECT_EQ(result.iteration, 8);
    EXPECT_TRUE(result.checkpoint.ends_with("checkpoint_000002")) << result.checkpoint;  // 3, 6 and the end
    EXPECT_FALSE(fs::exists(result.folder + "/checkpoint_000000"));
    EXPECT_TRUE(TextOf(result.checkpoint + "/state").starts_with("8 "));
  }
}

void ReportPid(tune::Trial& trial) { trial.Report({{"loss", 1.0}, {"process", static_cast<std::int64_t>(getpid())}}); }

TEST_F(TuneTest, ReusedProcessesRunSeveralTrials) {
  std::set<std::int64_t> fresh;
  std::set<std::int64_t> reused;
  for (const tune::Result& result : Run(ReportPid).Samples(6).Run())
    fresh.insert(std::get<std::int64_t>(result.metrics.at("process")));
  for (const tune::Result& result : Run(ReportPid).Samples(6).ReuseProcesses().Run())
    reused.insert(std::get<std::int64_t>(result.metrics.at("process")));
  EXPECT_EQ(fresh.size(), 6U);
  EXPECT_LE(reused.size(), 2U);
}

// The program tests/programs/tuning.cc, as a user would start it.
std::string Drive(const std::string& storage, const std::string& failpoint, bool resume, int* status) {
  const std::string program = fs::read_symlink("/proc/self/exe").parent_path().string() + "/tuning";
  const std::string output = storage + "/output";
  const pid_t child = fork();
  if (child == 0) {
    if (!failpoint.empty()) setenv("MANTA_TUNE_FAILPOINT", failpoint.c_str(), 1);
    if (std::freopen(output.c_str(), "w", stdout) == nullptr) _exit(3);
    execl(program.c_str(), program.c_str(), storage.c_str(), "6", resume ? "resume" : nullptr, nullptr);
    _exit(4);
  }
  waitpid(child, status, 0);
  return TextOf(output);
}

struct Killed : ::testing::Test, ::testing::WithParamInterface<const char*> {};

TEST_P(Killed, ADriverThatIsKilledAnywhereIsRestoredToTheSameTrialsAndBest) {
  int status = 0;
  const Folder undisturbed;
  const std::string expected = Drive(undisturbed.path(), "", false, &status);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const Folder disturbed;
  (void)Drive(disturbed.path(), GetParam(), false, &status);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the failpoint was not reached";
  EXPECT_EQ(Drive(disturbed.path(), "", true, &status), expected);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // Every result is in the files, and none twice.
  for (const auto& entry : fs::directory_iterator(disturbed.path() + "/run")) {
    if (!entry.is_directory()) continue;
    const std::string text = TextOf(entry.path().string() + "/result.json");
    const auto lines = std::count(text.begin(), text.end(), '\n');
    for (int i = 1; i <= lines; ++i) {
      const std::string key = "\"training_iteration\": " + std::to_string(i) + ",";
      const std::size_t first = text.find(key);
      ASSERT_NE(first, std::string::npos) << key << " of " << lines;
      EXPECT_EQ(text.find(key, first + 1), std::string::npos) << key << " is there twice";
    }
    EXPECT_EQ(Lines(entry.path().string() + "/progress.csv"), static_cast<std::size_t>(lines) + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Failpoints, Killed,
                         ::testing::Values("result.before@1", "result.before@7", "committed@1", "committed@3",
                                           "committed@9", "result.recorded@1", "result.recorded@12", "result.logged@13",
                                           "trial.chosen@3", "trial.started@4", "trial.stopped@3", "trial.ended@2",
                                           "checkpoint.dropped@1", "run.ended@1"));

}  // namespace
}  // namespace manta::testing
