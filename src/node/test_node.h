// For tests: a daemon and clients that speak raw messages to it, all in one thread. A client that waits
// for an answer runs the daemon's loop meanwhile.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/program.h"
#include "node/daemon.h"
#include "node/fixture/worker.h"
#include "shm/arena.h"
#include "wire/frame.h"

namespace manta::node {

inline constexpr std::int64_t kPatienceUs = 20'000'000;

inline std::string FixturePath() { return base::BesideProgram("node_fixture"); }

class TestClient {
 public:
  TestClient(Daemon& daemon, base::Fd socket) : daemon_(daemon), socket_(std::move(socket)) {
    fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  }

  static std::unique_ptr<TestClient> Connect(Daemon& daemon) {
    base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string& address = daemon.address();
    std::memcpy(name.sun_path + 1, address.data() + 1, address.size() - 1);
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&name),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size())),
              0);
    return std::make_unique<TestClient>(daemon, std::move(socket));
  }

  template <typename M>
  void Send(const M& message, std::uint64_t call = 0, std::vector<int> fds = {}) {
    SendBytes(wire::EncodeFrame(message, call, fds.size()), std::move(fds));
  }
  void SendBytes(const std::string& bytes, const std::vector<int>& fds = {}) {
    EXPECT_TRUE(wire::SendAll(socket_.get(), std::as_bytes(std::span(bytes)), fds).ok());
  }

  // A driver with an arena and the fixture as its program.
  void SayHello(const Id& job, const std::string& name = "") {
    SendHello(job, name, false);
    AwaitWelcome();
  }
  void SendHello(const Id& job, const std::string& name, bool resume) {
    Result<shm::Arena> arena = shm::Arena::Create();
    ASSERT_TRUE(arena.ok());
    arena_ = std::make_unique<shm::Arena>(std::move(*arena));
    const base::Fd program(open(FixturePath().c_str(), O_PATH | O_CLOEXEC));
    ASSERT_TRUE(program.valid()) << FixturePath();
    wire::Hello hello;
    hello.role = wire::Role::kDriver;
    hello.pid = static_cast<std::uint32_t>(getpid());
    hello.job = job;
    hello.program = FixturePath();
    hello.arguments = {hello.program};
    hello.job_name = name;
    hello.resume = resume;
    Send(hello, 1, {arena_->fd(), program.get()});
  }
  void AwaitWelcome() {
    std::optional<wire::Frame> answer = Await(wire::Kind::kWelcome);
    ASSERT_TRUE(answer.has_value());
    welcome = *answer->As<wire::Welcome>();
    ASSERT_EQ(answer->fds.size(), 1U);
    node_area = std::move(answer->fds[0]);
  }

  // The next message of that kind; others before it are kept for later. Nothing: the daemon closed, or took too long.
  std::optional<wire::Frame> Await(wire::Kind kind) {
    const std::int64_t deadline = base::NowMicros() + kPatienceUs;
    for (;;) {
      for (auto it = frames_.begin(); it != frames_.end(); ++it) {
        if (it->kind != kind) continue;
        wire::Frame frame = std::move(*it);
        frames_.erase(it);
        return frame;
      }
      if (closed || base::NowMicros() > deadline) return std::nullopt;
      Pump();
    }
  }
  template <typename M>
  std::optional<M> Await() {
    const std::optional<wire::Frame> frame = Await(M::kKind);
    if (!frame.has_value()) return std::nullopt;
    Result<M> message = frame->As<M>();
    EXPECT_TRUE(message.ok()) << message.status().message();
    if (!message.ok()) return std::nullopt;
    return *message;
  }
  // The answer to this call, whatever it is.
  std::optional<wire::Frame> AwaitAnswer(std::uint64_t call) {
    const std::int64_t deadline = base::NowMicros() + kPatienceUs;
    for (;;) {
      for (auto it = frames_.begin(); it != frames_.end(); ++it) {
        if (it->call != call) continue;
        wire::Frame frame = std::move(*it);
        frames_.erase(it);
        return frame;
      }
      if (closed || base::NowMicros() > deadline) return std::nullopt;
      Pump();
    }
  }
  bool AwaitClose() {
    const std::int64_t deadline = base::NowMicros() + kPatienceUs;
    while (!closed && base::NowMicros() < deadline) Pump();
    return closed;
  }
  // The daemon has seen all that was sent to it, and its answers are here.
  void Settle() {
    for (int i = 0; i < 5; ++i) daemon_.loop().RunOnce(0);
    Read();
  }
  bool Has(wire::Kind kind) {
    Settle();
    for (const wire::Frame& frame : frames_) {
      if (frame.kind == kind) return true;
    }
    return false;
  }
  // Everything the workers printed until `text` came.
  std::vector<wire::LogLine> AwaitLine(const std::string& text) {
    for (;;) {
      for (const wire::LogLine& line : lines) {
        if (line.text == text) return lines;
      }
      const std::optional<wire::LogLines> more = Await<wire::LogLines>();
      if (!more.has_value()) return lines;
      lines.insert(lines.end(), more->lines.begin(), more->lines.end());
    }
  }
  // Asks for the status until it is as wanted.
  bool AwaitStatus(const std::function<bool(const wire::StatusReply&)>& wanted) {
    const std::int64_t deadline = base::NowMicros() + kPatienceUs;
    while (base::NowMicros() < deadline) {
      Send(wire::StatusRequest{}, 1000);
      const std::optional<wire::StatusReply> status = Await<wire::StatusReply>();
      if (!status.has_value()) return false;
      if (wanted(*status)) return true;
    }
    return false;
  }
  void Close() { socket_.Reset(-1); }
  [[nodiscard]] shm::Arena& arena() { return *arena_; }

  std::function<void()> pump;  // instead of one round of this daemon alone
  wire::Welcome welcome;
  base::Fd node_area;
  bool closed = false;
  std::vector<wire::LogLine> lines;

 private:
  void Pump() {
    if (pump) {
      pump();
    } else {
      daemon_.loop().RunOnce(1000);
    }
    Read();
  }
  void Read() {
    while (!closed && socket_.valid()) {
      std::array<std::byte, 4096> buffer{};
      std::vector<base::Fd> fds;
      std::size_t count = 0;
      bool would_block = false;
      const Status status = wire::Receive(socket_.get(), buffer, &count, &fds, &would_block);
      if (would_block) return;
      if (!status.ok() || count == 0) {
        closed = true;
        return;
      }
      reader_.Add(std::span(buffer).first(count), std::move(fds));
      wire::Frame frame;
      while (*reader_.Next(&frame)) frames_.push_back(std::exchange(frame, {}));
    }
  }

  Daemon& daemon_;
  base::Fd socket_;
  std::unique_ptr<shm::Arena> arena_;
  wire::FrameReader reader_;
  std::deque<wire::Frame> frames_;
};

class NodeTest : public testing::Test {
 protected:
  void Start(double cpus, const std::function<void(Config&)>& change = {}) {
    static std::atomic<int> count{0};
    Config config;
    config.address = Cat("@manta-test-", getpid(), "-", ++count);
    config.total.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
    config.store_bytes = 64ULL << 20;
    if (change) change(config);
    Result<std::unique_ptr<Daemon>> made = Daemon::Create(std::move(config));
    ASSERT_TRUE(made.ok()) << made.status().message();
    daemon_ = std::move(*made);
  }
  std::unique_ptr<TestClient> Connect() { return TestClient::Connect(*daemon_); }
  std::unique_ptr<TestClient> Driver(std::uint64_t job = 1) {
    std::unique_ptr<TestClient> client = Connect();
    client->SayHello(Id{job, 1});
    return client;
  }
  static wire::LeaseRequest Ask(std::uint64_t request, double cpus, std::uint64_t queue = fixture::kPlain) {
    wire::LeaseRequest message;
    message.request = request;
    message.need.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
    message.queue = queue;
    message.lane = shm::kChunksOffset;
    return message;
  }

  std::unique_ptr<Daemon> daemon_;
};

}  // namespace manta::node
