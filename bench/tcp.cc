#include "tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "harness.h"

namespace bench {
namespace {

constexpr std::size_t kPiece = 1U << 20;

void Check(bool ok, const char* what) {
  if (!ok) Fail(std::string(what) + ": " + std::strerror(errno));
}

struct Pair {
  int near = -1;
  int far = -1;
};

Pair Connect() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  Check(::bind(listener, raw, size) == 0 && ::listen(listener, 1) == 0, "cannot listen");
  ::getsockname(listener, raw, &size);
  Pair pair;
  pair.near = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Check(::connect(pair.near, raw, size) == 0, "cannot connect");
  pair.far = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  Check(pair.far >= 0, "cannot accept");
  ::close(listener);
  const int on = 1;
  ::setsockopt(pair.near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(pair.far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return pair;
}

bool WriteAll(int fd, const std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t sent = ::send(fd, data + at, bytes - at, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += static_cast<std::size_t>(sent);
  }
  return true;
}

bool ReadAll(int fd, std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t got = ::recv(fd, data + at, bytes - at, 0);
    if (got <= 0) return false;
    at += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

TcpEcho::TcpEcho() {
  const Pair pair = Connect();
  const pid_t parent = ::getpid();
  child_ = ::fork();
  Check(child_ >= 0, "cannot fork");
  if (child_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(pair.near);
    static std::byte buffer[kPiece];
    for (ssize_t got = 0; ::getppid() == parent && (got = ::recv(pair.far, buffer, sizeof buffer, 0)) > 0;) {
      if (!WriteAll(pair.far, buffer, static_cast<std::size_t>(got))) break;
    }
    ::_exit(0);
  }
  ::close(pair.far);
  fd_ = pair.near;
}

TcpEcho::~TcpEcho() {
  ::close(fd_);
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

double TcpEcho::TripUs(double seconds, std::size_t bytes) {
  std::vector<std::byte> buffer(bytes);
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
    const double begin = Now();
    Check(WriteAll(fd_, buffer.data(), bytes) && ReadAll(fd_, buffer.data(), bytes), "ping-pong");
    samples.push_back(Now() - begin);
  }
  return Percentile(samples, 0.5) * 1e6;
}

double TcpEcho::PerSecond(double seconds, std::size_t bytes, std::size_t window) {
  std::vector<std::byte> buffer(bytes * window);
  std::size_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now(), count += window) {
    Check(WriteAll(fd_, buffer.data(), buffer.size()) && ReadAll(fd_, buffer.data(), buffer.size()), "echo");
  }
  return static_cast<double>(count) / (now - begin);
}

TcpBulk::TcpBulk(std::size_t bytes) : bytes_(bytes) {
  const auto make = [&] {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    Check(memory != MAP_FAILED, "no memory for bare TCP");
    std::memset(memory, 1, bytes);
    return static_cast<std::byte*>(memory);
  };
  from_ = make();
  into_ = make();
}

TcpBulk::~TcpBulk() {
  ::munmap(from_, bytes_);
  ::munmap(into_, bytes_);
}

double TcpBulk::GigabytesPerSecond() { return static_cast<double>(bytes_) / 1e9 / std::min(Seconds(1), Seconds(4)); }

double TcpBulk::Seconds(std::size_t connections) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < connections; ++i) pairs.push_back(Connect());
  const std::size_t share = bytes_ / connections;
  std::vector<std::thread> threads;
  const double begin = Now();
  for (std::size_t i = 0; i < connections; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t at = 0; at < share; at += kPiece) {
        if (!WriteAll(pairs[i].near, from_ + i * share + at, std::min(kPiece, share - at))) return;
      }
    });
    threads.emplace_back([&, i] {
      for (std::size_t at = 0; at < share; at += kPiece) {
        if (!ReadAll(pairs[i].far, into_ + i * share + at, std::min(kPiece, share - at))) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = Now() - begin;
  for (const Pair& pair : pairs) {
    ::close(pair.near);
    ::close(pair.far);
  }
  return seconds;
}

}  // namespace bench
