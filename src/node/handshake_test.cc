#include <sys/wait.h>

#include <filesystem>

#include "base/program.h"
#include "node/status.h"
#include "node/test_node.h"

namespace manta::node {
namespace {

using Handshake = NodeTest;

TEST_F(Handshake, ADriverIsWelcomedWithANumberAndTheResources) {
  Start(2);
  const auto driver = Driver();
  EXPECT_NE(driver->welcome.process, kNoProcess);
  EXPECT_EQ(driver->welcome.total.Get("CPU"), 2 * kUnit);
  EXPECT_EQ(driver->welcome.address, daemon_->address());
}

TEST_F(Handshake, AWrongVersionIsRefusedWithBothVersions) {
  Start(1);
  const auto client = Connect();
  wire::Hello hello;
  hello.version = 77;
  hello.role = wire::Role::kTool;
  client->Send(hello, 5);
  const auto failed = client->Await<wire::Failed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_NE(failed->failure.message.find("version 77"), std::string::npos) << failed->failure.message;
  EXPECT_NE(failed->failure.message.find(Cat("version ", wire::kVersion)), std::string::npos);
  EXPECT_TRUE(client->AwaitClose());
}

TEST_F(Handshake, WhoSpeaksBeforeHelloIsDropped) {
  Start(1);
  const auto client = Connect();
  client->Send(wire::StatusRequest{}, 1);
  EXPECT_TRUE(client->AwaitClose());
}

TEST_F(Handshake, AStrangerCannotBeAWorker) {
  Start(1);
  const auto client = Connect();
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  client->Send(hello, 1);
  EXPECT_TRUE(client->Await<wire::Failed>().has_value());
  EXPECT_TRUE(client->AwaitClose());
}

TEST_F(Handshake, AnArenaThatCouldShrinkUnderTheDaemonIsRefused) {
  Start(1);
  const auto client = Connect();
  const base::Fd memory(open("/dev/null", O_RDWR | O_CLOEXEC));
  wire::Hello hello;
  hello.job = Id{1, 1};
  client->Send(hello, 1, {memory.get(), memory.get()});
  EXPECT_TRUE(client->Await<wire::Failed>().has_value());
}

// Of a job with a name, which one driver has at a time.
class Resuming : public NodeTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/manta_handshake_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    state_ = name;
  }
  void TearDown() override {
    daemon_.reset();
    std::error_code error;
    std::filesystem::remove_all(state_, error);
  }
  void StartWithPatience(std::int64_t resume_us) {
    Start(1, [&](Config& config) {
      config.state_folder = state_;
      config.resume_us = resume_us;
    });
    first_ = Connect();
    first_->SayHello(Id{1, 1}, "weekly");
  }
  std::unique_ptr<TestClient> Next(bool resume) {
    std::unique_ptr<TestClient> next = Connect();
    next->SendHello(Id{2, 1}, "weekly", resume);
    return next;
  }
  std::string state_;
  std::unique_ptr<TestClient> first_;
};

TEST_F(Resuming, ADriverThatResumesAJobWaitsForTheEndOfTheOneBefore) {
  StartWithPatience(kPatienceUs);
  const auto next = Next(true);
  EXPECT_FALSE(next->Has(wire::Kind::kFailed));
  EXPECT_FALSE(next->Has(wire::Kind::kWelcome));
  first_->Close();
  next->AwaitWelcome();
  EXPECT_TRUE(next->welcome.resumed);
  EXPECT_EQ(next->welcome.job, (Id{1, 1}));
}

TEST_F(Resuming, ADriverThatWaitsAndLeavesIsForgotten) {
  StartWithPatience(kPatienceUs);
  const auto next = Next(true);
  EXPECT_FALSE(next->Has(wire::Kind::kFailed));
  next->Close();
  first_->Close();
  const auto last = Next(true);
  last->AwaitWelcome();
  EXPECT_TRUE(last->welcome.resumed);
}

TEST_F(Resuming, AJobThatDoesNotEndIsAnErrorWhenTheTimeIsUp) {
  StartWithPatience(50'000);
  const auto next = Next(true);
  const auto failed = next->Await<wire::Failed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure.code, Code::kUnavailable);
  EXPECT_NE(failed->failure.message.find("the job 'weekly' runs already"), std::string::npos);
  EXPECT_NE(failed->failure.message.find("waited 50 ms"), std::string::npos) << failed->failure.message;
  EXPECT_TRUE(next->AwaitClose());
}

TEST_F(Resuming, WhoDoesNotResumeIsToldAtOnce) {
  StartWithPatience(kPatienceUs * 1000);
  const auto failed = Next(false)->Await<wire::Failed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_NE(failed->failure.message.find("the job 'weekly' runs already"), std::string::npos);
  EXPECT_EQ(failed->failure.message.find("waited"), std::string::npos) << failed->failure.message;
}

TEST_F(Resuming, WhoSpeaksWhileItWaitsIsDropped) {
  StartWithPatience(kPatienceUs * 1000);
  const auto next = Next(true);
  next->Send(wire::StatusRequest{}, 1);
  EXPECT_TRUE(next->AwaitClose());
}

TEST_F(Handshake, AnUnknownMessageClosesThatPeerOnly) {
  Start(1);
  const auto good = Driver(1);
  const auto bad = Driver(2);
  bad->SendBytes(wire::EncodeFrame(static_cast<wire::Kind>(999), 0, {}, 0));
  EXPECT_TRUE(bad->AwaitClose());
  good->Send(wire::StatusRequest{}, 3);
  EXPECT_TRUE(good->Await<wire::StatusReply>().has_value());
}

TEST_F(Handshake, ACorruptFrameClosesThatPeerOnly) {
  Start(1);
  const auto good = Driver(1);
  const auto bad = Driver(2);
  std::string bytes = wire::EncodeFrame(Ask(1, 1));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  bad->SendBytes(bytes);
  EXPECT_TRUE(bad->AwaitClose());
  const auto garbage = Connect();
  garbage->SendBytes(std::string(100, 'x'));
  EXPECT_TRUE(garbage->AwaitClose());
  good->Send(wire::StatusRequest{}, 3);
  EXPECT_TRUE(good->Await<wire::StatusReply>().has_value());
}

TEST_F(Handshake, AMessageThatDoesNotDecodeClosesThatPeer) {
  Start(1);
  const auto bad = Driver(1);
  const std::string body = "\xff\xff\xff";
  bad->SendBytes(wire::EncodeFrame(wire::Kind::kHold, 0, std::as_bytes(std::span(body)), 0));
  EXPECT_TRUE(bad->AwaitClose());
}

TEST_F(Handshake, ATakenAddressIsAClearError) {
  Start(1);
  Config config;
  config.address = daemon_->address();
  const Result<std::unique_ptr<Daemon>> second = Daemon::Create(config);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("is taken"), std::string::npos) << second.status().message();
}

// The dead one may have been about to wake it, see shm/node_area.h.
TEST_F(Handshake, WhoSleepsThoughItLooksAwakeIsRousedWhenAnotherProcessDies) {
  Start(1);
  const auto sleeper = Driver(1);
  const auto ringer = Driver(2);
  Result<shm::NodeArea> area = shm::NodeArea::Open(std::move(sleeper->node_area));
  ASSERT_TRUE(area.ok());
  shm::Doorbell& bell = area->bell(sleeper->welcome.process);
  const std::uint32_t ticket = bell.PrepareSleep();
  bell.sleeping.store(0);
  ringer->Close();
  EXPECT_TRUE(sleeper->AwaitStatus([&](const wire::StatusReply&) { return bell.rings.load() != ticket; }));
}

TEST_F(Handshake, AJobIdCannotBeUsedTwice) {
  Start(1);
  const auto first = Driver(7);
  const auto second = Connect();
  Result<shm::Arena> arena = shm::Arena::Create();
  const base::Fd program(open(FixturePath().c_str(), O_PATH | O_CLOEXEC));
  wire::Hello hello;
  hello.job = Id{7, 1};
  second->Send(hello, 1, {arena->fd(), program.get()});
  EXPECT_TRUE(second->Await<wire::Failed>().has_value());
}

// ---- the real program ----

struct Process {
  pid_t pid = -1;
  base::Fd socket;
};

Process StartPrivate() {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const std::string mantad = base::BesideProgram("mantad");
  const pid_t pid = fork();
  if (pid == 0) {
    fcntl(pair[1], F_SETFD, 0);
    execl(mantad.c_str(), "mantad", "--private-fd", std::to_string(pair[1]).c_str(), "--cpus", "2", "--store-bytes",
          "67108864", nullptr);
    _exit(127);
  }
  close(pair[1]);
  return Process{pid, base::Fd(pair[0])};
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

TEST(Mantad, APrivateDaemonEndsWhenItsConnectionCloses) {
  Process mantad = StartPrivate();
  mantad.socket.Reset(-1);
  const int status = WaitFor(mantad.pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Mantad, APrivateDaemonAnswersGoodbyeAndEndsWithItsWorkers) {
  Process mantad = StartPrivate();
  Result<shm::Arena> arena = shm::Arena::Create();
  const base::Fd program(open(FixturePath().c_str(), O_PATH | O_CLOEXEC));
  wire::Hello hello;
  hello.job = Id{1, 1};
  hello.program = FixturePath();
  const int fds[2] = {arena->fd(), program.get()};
  const std::string bytes = wire::EncodeFrame(hello, 1, 2) + wire::EncodeFrame(wire::Goodbye{}, 2);
  ASSERT_TRUE(wire::SendAll(mantad.socket.get(), std::as_bytes(std::span(bytes)), fds).ok());
  wire::FrameReader reader;
  std::vector<wire::Kind> kinds;
  for (;;) {
    std::array<std::byte, 4096> buffer{};
    std::vector<base::Fd> received;
    std::size_t count = 0;
    bool would_block = false;
    ASSERT_TRUE(wire::Receive(mantad.socket.get(), buffer, &count, &received, &would_block).ok());
    if (count == 0) break;
    reader.Add(std::span(buffer).first(count), std::move(received));
    wire::Frame frame;
    while (*reader.Next(&frame)) kinds.push_back(frame.kind);
  }
  ASSERT_FALSE(kinds.empty());
  EXPECT_EQ(kinds.front(), wire::Kind::kWelcome);
  EXPECT_EQ(kinds.back(), wire::Kind::kDone);
  const int status = WaitFor(mantad.pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Mantad, RunsUntilItIsToldToStopAndTellsItsStatus) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const std::string mantad = base::BesideProgram("mantad");
  const pid_t pid = fork();
  if (pid == 0) {
    fcntl(ready[1], F_SETFD, 0);
    execl(mantad.c_str(), "mantad", "--ready-fd", std::to_string(ready[1]).c_str(), "--cpus", "3", nullptr);
    _exit(127);
  }
  close(ready[1]);
  char address[128] = {};
  ASSERT_GT(read(ready[0], address, sizeof address - 1), 1);
  close(ready[0]);
  address[std::strcspn(address, "\n")] = '\0';
  const std::vector<std::string> found = FindClusters();
  EXPECT_NE(std::find(found.begin(), found.end(), address), found.end());
  const Result<wire::StatusReply> status = AskStatus(address);
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_EQ(status.value().total.Get("CPU"), 3 * kUnit);
  EXPECT_EQ(status.value().pid, static_cast<std::uint32_t>(pid));
  kill(pid, SIGTERM);
  const int ended = WaitFor(pid);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
  EXPECT_FALSE(AskStatus(address).ok());
}

}  // namespace
}  // namespace manta::node
