#include "worker/fork_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "wire/frame.h"
#include "worker/start_hook.h"

namespace manta::worker {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  char piece[4096];
  for (ssize_t n = 0; (n = read(fd, piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(n));
  return text;
}

std::string RunCommand(const std::string& command, int* status) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char piece[4096];
  for (std::size_t n = 0; (n = fread(piece, 1, sizeof piece, pipe)) > 0;) text.append(piece, n);
  *status = pclose(pipe);
  return text;
}

// What a worker of the fixture has at the daemon's side.
struct Ends {
  base::Fd socket;
  base::Fd out;
  base::Fd err;

  std::string Ask() {
    EXPECT_EQ(write(socket.get(), "?", 1), 1);
    std::string line;
    for (char c = 0; read(socket.get(), &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
};

// The daemon's side of a fork server.
class Daemon {
 public:
  explicit Daemon(const char* program, const std::vector<std::string>& variables = {}) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    socket_.Reset(pair[0]);
    pid_ = fork();
    if (pid_ == 0) {
      setenv("MANTA_FORK_SERVER_FD", std::to_string(pair[1]).c_str(), 1);
      for (const std::string& variable : variables) putenv(const_cast<char*>(variable.c_str()));
      fcntl(pair[1], F_SETFD, 0);
      execl(program, program, "argument one", static_cast<char*>(nullptr));
      _exit(127);
    }
    close(pair[1]);
  }
  ~Daemon() {
    socket_.Reset(-1);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Sends Fork; the descriptors of the other side are closed here.
  Ends Fork(std::uint64_t ticket) {
    int sockets[2];
    int out[2];
    int err[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    const std::array<int, 3> fds = {sockets[1], out[1], err[1]};
    wire::Fork message;
    message.ticket = ticket;
    const std::string frame = wire::EncodeFrame(message, 0, 3);
    EXPECT_TRUE(wire::SendAll(socket_.get(), std::as_bytes(std::span(frame)), fds).ok());
    for (const int fd : fds) close(fd);
    return {base::Fd(sockets[0]), base::Fd(out[0]), base::Fd(err[0])};
  }

  template <typename M>
  M Next() {
    wire::Frame frame;
    for (;;) {
      Result<bool> next = reader_.Next(&frame);
      if (!next.ok()) ADD_FAILURE() << next.status().message();
      if (!next.ok()) return {};
      if (*next) break;
      std::array<std::byte, 4096> bytes;
      std::size_t count = 0;
      std::vector<base::Fd> fds;
      bool would_block = false;
      EXPECT_TRUE(wire::Receive(socket_.get(), bytes, &count, &fds, &would_block).ok());
      if (count == 0) ADD_FAILURE() << "the fork server is gone";
      if (count == 0) return {};
      reader_.Add(std::span(bytes).first(count), std::move(fds));
    }
    Result<M> message = frame.As<M>();
    if (!message.ok()) ADD_FAILURE() << message.status().message();
    return message.ok() ? *message : M{};
  }

  void Close() { socket_.Reset(-1); }
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }

 private:
  base::Fd socket_;
  pid_t pid_ = 0;
  wire::FrameReader reader_;
};

std::string AnswerOf(const Daemon& daemon) {
  std::ostringstream text;
  text << "manta-worker ppid=" << daemon.pid() << " chld=0 death=9 worker=1 env=00";
  return text.str();
}

class StartHook : public testing::TestWithParam<const char*> {};

TEST_P(StartHook, MainRunsAsAlwaysWithoutTheVariable) {
  int status = 0;
  EXPECT_EQ(RunCommand(std::string("FIXTURE_SAY=1 ") + GetParam() + " hello", &status),
            "statics ran\nmain ran 2 hello\n");
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_P(StartHook, AVariableThatNamesNoDescriptorIsIgnored) {
  int status = 0;
  EXPECT_EQ(RunCommand(std::string("MANTA_FORK_SERVER_FD=77 ") + GetParam(), &status), "main ran 1 \n");
  EXPECT_EQ(RunCommand(std::string("MANTA_FORK_SERVER_FD=x ") + GetParam(), &status), "main ran 1 \n");
}

TEST_P(StartHook, StaticsRunAndMainDoesNotInAForkServer) {
  int status = 0;
  const std::string text =
      RunCommand(std::string("FIXTURE_SAY=1 MANTA_FORK_SERVER_FD=0 ") + GetParam() + " </dev/null", &status);
  EXPECT_EQ(text.substr(0, 12), "statics ran\n");
  EXPECT_EQ(text.find("main ran"), std::string::npos);
}

TEST_P(StartHook, WorkersAreForkedAndTold) {
  Daemon daemon(GetParam(), {"FIXTURE_SAY=1"});
  Ends worker = daemon.Fork(11);
  const auto forked = daemon.Next<wire::Forked>();
  EXPECT_EQ(forked.ticket, 11U);
  EXPECT_GT(forked.pid, 0U);
  EXPECT_EQ(worker.Ask(), AnswerOf(daemon));
  EXPECT_EQ(write(worker.socket.get(), "x", 1), 1);
  const auto exited = daemon.Next<wire::Exited>();
  EXPECT_EQ(exited.pid, forked.pid);
  ASSERT_TRUE(WIFEXITED(exited.status));
  EXPECT_EQ(WEXITSTATUS(exited.status), 7);
  EXPECT_EQ(ReadAll(worker.out.get()), "out\n") << "statics print once, in the server";
  EXPECT_EQ(ReadAll(worker.err.get()), "err\n");
}

INSTANTIATE_TEST_SUITE_P(Programs, StartHook, testing::Values(FIXTURE, FIXTURE_FIXED),
                         [](const auto& program) { return std::string(program.index == 0 ? "Pie" : "NoPie"); });

// A socket whose other end another user made, as the kernel sees it.
void MakeForeignPair(int (&pair)[2]) {
  ASSERT_EQ(seteuid(65534), 0);
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  ASSERT_EQ(seteuid(0), 0);
}

// The attack: a Fork message waits at the socket of a fork server, and any message at that of a worker. Neither process
// may read it.
TEST_P(StartHook, NeitherForkServerNorWorkerReadsFromAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const bool server : {true, false}) {
    int pair[2];
    ASSERT_NO_FATAL_FAILURE(MakeForeignPair(pair));
    ASSERT_EQ(write(pair[0], "?", 1), 1);
    const std::string fd = std::to_string(pair[1]);  // inherited
    const std::string variable = server ? "MANTA_FORK_SERVER_FD=" + fd : "MANTA_WORKER_FDS=" + fd + ",1,2";
    int status = 0;
    const std::string text = RunCommand(variable + " " + GetParam() + " 2>&1", &status);
    EXPECT_EQ(WEXITSTATUS(status), 77) << text;
    EXPECT_NE(text.find("is served by user nobody (65534)"), std::string::npos) << text;
    char left = 0;
    EXPECT_EQ(recv(pair[1], &left, 1, MSG_DONTWAIT), 1);   // not read
    EXPECT_EQ(recv(pair[0], &left, 1, MSG_DONTWAIT), -1);  // not answered
    close(pair[0]);
    close(pair[1]);
  }
}

TEST(ForkServer, AProgramWithThreadsIsStartedAfreshForEachWorker) {
  Daemon daemon(FIXTURE, {"FIXTURE_THREAD=1", "FIXTURE_SAY=1"});
  Ends worker = daemon.Fork(1);
  const auto forked = daemon.Next<wire::Forked>();
  EXPECT_GT(forked.pid, 0U);
  EXPECT_EQ(worker.Ask(), AnswerOf(daemon));
  std::ifstream file("/proc/" + std::to_string(forked.pid) + "/cmdline");
  const std::string arguments((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(arguments, std::string(FIXTURE) + '\0' + "argument one" + '\0');
  EXPECT_EQ(write(worker.socket.get(), "x", 1), 1);
  EXPECT_EQ(WEXITSTATUS(daemon.Next<wire::Exited>().status), 7);
  EXPECT_EQ(ReadAll(worker.out.get()), "statics ran\nout\n");
}

TEST(ForkServer, ACrashIsReportedWithItsSignalAndStack) {
  // Sanitizers would report it instead, and exit.
  Daemon daemon(FIXTURE, {"ASAN_OPTIONS=handle_segv=0", "TSAN_OPTIONS=handle_segv=0"});
  Ends worker = daemon.Fork(1);
  const auto forked = daemon.Next<wire::Forked>();
  EXPECT_EQ(write(worker.socket.get(), "c", 1), 1);
  const auto exited = daemon.Next<wire::Exited>();
  EXPECT_EQ(exited.pid, forked.pid);
  ASSERT_TRUE(WIFSIGNALED(exited.status));
  EXPECT_EQ(WTERMSIG(exited.status), SIGSEGV);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // with one of them the stack is not ours to show
  const std::string err = ReadAll(worker.err.get());
  EXPECT_NE(err.find("at address 0x1234"), std::string::npos) << err;
  EXPECT_NE(err.find("Crash + 0x"), std::string::npos) << err;
#endif
}

TEST(ForkServer, AnUnfinishedLineIsNotLostWhenAWorkerLeaves) {
  Daemon daemon(FIXTURE);
  Ends worker = daemon.Fork(1);
  EXPECT_EQ(write(worker.socket.get(), "p", 1), 1);
  EXPECT_EQ(ReadAll(worker.out.get()), "unfinished\n");
}

TEST(ForkServer, ManyWorkersAtOnceShareNoDescriptors) {
  Daemon daemon(FIXTURE);
  std::vector<Ends> workers;
  for (std::uint64_t i = 0; i < 20; ++i) workers.push_back(daemon.Fork(i));  // many in the server's buffer
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(daemon.Next<wire::Forked>().ticket, i);
  // A worker that kept another's pipe would keep it from ending.
  for (std::size_t i = 20; i-- > 0;) {
    EXPECT_EQ(write(workers[i].socket.get(), "x", 1), 1);
    EXPECT_EQ(ReadAll(workers[i].out.get()), "");
    EXPECT_EQ(WEXITSTATUS(daemon.Next<wire::Exited>().status), 7);
  }
}

TEST(ForkServer, WorkersDieWithTheDaemon) {
  Daemon daemon(FIXTURE);
  Ends worker = daemon.Fork(1);
  (void)daemon.Next<wire::Forked>();
  EXPECT_NE(worker.Ask(), "");
  daemon.Close();
  const int status = daemon.Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  (void)ReadAll(worker.out.get());  // ends only when the worker is gone
}

TEST(ForkServer, AMessageThatMakesNoSenseEndsIt) {
  Daemon daemon(FIXTURE);
  const std::string noise(100, 'x');
  EXPECT_TRUE(wire::SendAll(daemon.socket(), std::as_bytes(std::span(noise)), {}).ok());
  EXPECT_EQ(WEXITSTATUS(daemon.Wait()), 1);
}

TEST(ForkServer, AProgramThatMissedTheHookDivertsAtInit) {
  EXPECT_FALSE(InWorkerProcess());
  int status = 0;
  EXPECT_EQ(RunCommand(std::string(FIXTURE) + " divert", &status), "main ran 2 divert\n");
  // The program sets the variable itself, behind the hook's back.
  EXPECT_EQ(RunCommand(std::string("FIXTURE_LATE_FD=0 ") + FIXTURE + " divert </dev/null", &status), "");
}

}  // namespace
}  // namespace manta::worker
