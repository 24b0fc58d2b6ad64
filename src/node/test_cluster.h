// For tests: a cluster of real processes on loopback, and drivers that speak raw messages to a node of it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/program.h"
#include "node/head_tool.h"
#include "node/test_node.h"
#include "wire/scratch_folder.h"

namespace manta::node {

// A program that says on descriptor 9 that it is ready. Killed at the end.
class Program9 {
 public:
  Program9() = default;
  Program9(Program9&& other) noexcept
      : ready(std::move(other.ready)), pid_(std::exchange(other.pid_, -1)), ready_fd_(std::move(other.ready_fd_)) {}
  Program9& operator=(Program9&&) = delete;
  ~Program9() { End(SIGKILL); }

  void Start(const std::string& name, std::vector<std::string> words) {
    int pipe[2];
    ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
    const std::string path = base::BesideProgram(name);
    words.insert(words.begin(), path);
    words.insert(words.end(), {"--ready-fd", "9"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(pipe[1], 9);
      fcntl(9, F_SETFD, 0);  // it may have been 9 already
      execv(path.c_str(), argv.data());
      _exit(127);
    }
    close(pipe[1]);
    ready_fd_.Reset(pipe[0]);
  }
  // Its first line; empty: it ended without.
  std::string Ready() {
    char c = 0;
    while (ready_fd_.valid() && read(ready_fd_.get(), &c, 1) == 1 && c != '\n') ready += c;
    ready_fd_.Reset(-1);
    return ready;
  }
  void Signal(int number) const { kill(pid_, number); }
  // Its wait status.
  int Wait() {
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  int End(int signal) {
    if (pid_ > 0) kill(pid_, signal);
    return Wait();
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

  std::string ready;

 private:
  pid_t pid_ = -1;
  base::Fd ready_fd_;
};

// A driver with the fixture as its program, connected to a node's Unix socket.
class FarDriver {
 public:
  FarDriver(const std::string& address, const Id& job, const std::vector<std::string>& arguments = {}) {
    socket_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, address.data() + 1, address.size() - 1);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size())),
              0)
        << address;
    Result<shm::Arena> arena = shm::Arena::Create();
    arena_ = std::make_unique<shm::Arena>(std::move(*arena));
    const base::Fd program(open(FixturePath().c_str(), O_PATH | O_CLOEXEC));
    wire::Hello hello;
    hello.pid = static_cast<std::uint32_t>(getpid());
    hello.job = job;
    hello.program = FixturePath();
    hello.arguments = {hello.program};
    hello.arguments.insert(hello.arguments.end(), arguments.begin(), arguments.end());
    const int fds[2] = {arena_->fd(), program.get()};
    const std::string bytes = wire::EncodeFrame(hello, 1, 2);
    EXPECT_TRUE(wire::SendAll(socket_.get(), std::as_bytes(std::span(bytes)), fds).ok());
    if (const std::optional<wire::Welcome> answer = Await<wire::Welcome>(); answer.has_value()) welcome = *answer;
  }

  template <typename M>
  void Send(const M& message, std::uint64_t call = 0) {
    const std::string bytes = wire::EncodeFrame(message, call);
    EXPECT_TRUE(wire::SendAll(socket_.get(), std::as_bytes(std::span(bytes)), {}).ok());
  }
  // The next of that kind; nothing if none comes in time.
  template <typename M>
  std::optional<M> Await(std::int64_t timeout_us = kPatienceUs) {
    const std::int64_t deadline = base::NowMicros() + timeout_us;
    for (;;) {
      for (auto it = frames_.begin(); it != frames_.end(); ++it) {
        if (it->kind != M::kKind) continue;
        Result<M> message = it->template As<M>();
        frames_.erase(it);
        EXPECT_TRUE(message.ok());
        return *message;
      }
      if (closed || !Read(deadline)) return std::nullopt;
    }
  }
  bool AwaitLine(const std::string& text) {
    while (const std::optional<wire::LogLines> lines = Await<wire::LogLines>()) {
      for (const wire::LogLine& line : lines->lines) {
        if (line.text == text) return true;
      }
    }
    return false;
  }
  bool AwaitClose() {
    const std::int64_t deadline = base::NowMicros() + kPatienceUs;
    while (!closed && Read(deadline)) {
    }
    return closed;
  }
  void Close() { socket_.Reset(-1); }

  wire::Welcome welcome;
  bool closed = false;

 private:
  bool Read(std::int64_t deadline) {
    const std::int64_t left = deadline - base::NowMicros();
    pollfd wait{socket_.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left / 1000 + 1)) <= 0) return false;
    std::array<std::byte, 4096> buffer{};
    std::vector<base::Fd> fds;
    std::size_t count = 0;
    bool would_block = false;
    if (!wire::Receive(socket_.get(), buffer, &count, &fds, &would_block).ok() || count == 0) {
      closed = true;
      return false;
    }
    reader_.Add(std::span(buffer).first(count), std::move(fds));
    wire::Frame frame;
    while (*reader_.Next(&frame)) frames_.push_back(std::exchange(frame, {}));
    return true;
  }

  base::Fd socket_;
  std::unique_ptr<shm::Arena> arena_;
  wire::FrameReader reader_;
  std::deque<wire::Frame> frames_;
};

class ClusterTest : public testing::Test {
 protected:
  void StartControl(const std::string& listen = "127.0.0.1:0") {
    control_ = std::make_unique<Program9>();
    control_->Start("manta-control", {"--listen", listen, "--secrets", secrets_, "--folder", (folder_ / "control")});
    head_ = control_->Ready();
    ASSERT_FALSE(head_.empty());
  }
  Program9& StartNode(const std::string& name, const std::vector<std::string>& more = {}, bool wait = true) {
    std::vector<std::string> words{"--head-address",
                                   head_,
                                   "--secrets",
                                   secrets_,
                                   "--name",
                                   name,
                                   "--cpus",
                                   "1",
                                   "--store-bytes",
                                   "67108864",
                                   "--spill",
                                   "none",
                                   "--infeasible-wait",
                                   "0"};
    words.insert(words.end(), more.begin(), more.end());
    Program9& node = nodes_[name];
    node.Start("mantad", words);
    if (wait) {
      EXPECT_FALSE(node.Ready().empty()) << name;
    }
    return node;
  }
  std::unique_ptr<HeadTool> Tool() {
    Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(secrets_);
    EXPECT_TRUE(secrets.ok());
    Result<std::unique_ptr<HeadTool>> tool = HeadTool::Connect(head_, *secrets, 5'000'000);
    EXPECT_TRUE(tool.ok()) << tool.status().message();
    return tool.ok() ? std::move(*tool) : nullptr;
  }
  // Asks until it is as wanted; how long that took, -1: never.
  std::int64_t AwaitNodes(const std::function<bool(const std::vector<wire::NodeFacts>&)>& wanted) {
    const std::int64_t start = base::NowMicros();
    const std::unique_ptr<HeadTool> tool = Tool();
    while (tool != nullptr && base::NowMicros() < start + kPatienceUs) {
      const Result<std::vector<wire::NodeFacts>> nodes = tool->Nodes(true, 5'000'000);
      if (nodes.ok() && wanted(nodes.value())) return base::NowMicros() - start;
    }
    return -1;
  }
  std::unique_ptr<FarDriver> Driver(const std::string& node, std::uint64_t job = 7) {
    return std::make_unique<FarDriver>(nodes_.at(node).ready, Id{job, 1});
  }
  static wire::LeaseRequest Ask(std::uint64_t request, const std::string& resource,
                                std::uint64_t queue = fixture::kPlain) {
    wire::LeaseRequest message;
    message.request = request;
    message.need.Set(resource, kUnit);
    message.queue = queue;
    message.lane = shm::kChunksOffset;
    return message;
  }

  wire::ScratchFolder folder_;
  std::string secrets_ = (folder_ / "secrets");
  std::string head_;
  std::unique_ptr<Program9> control_;
  std::map<std::string, Program9> nodes_;
};

[[nodiscard]] inline const wire::NodeFacts* Named(const std::vector<wire::NodeFacts>& nodes, const std::string& name) {
  for (const wire::NodeFacts& node : nodes) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

}  // namespace manta::node
