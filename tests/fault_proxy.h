// A TCP proxy on loopback that is as bad as a network can be, and always in the same way for the same seed: it holds
// back what it forwards for random times, passes it on in random pieces, and can cut every connection in the middle of
// a message. Nothing is changed, doubled or reordered: TCP does not do that.
//
// One thread of its own. Settings may be changed at any time.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "processes.h"

namespace manta::testing {

class FaultProxy {
 public:
  // `target`: "127.0.0.1:6400".
  FaultProxy(const std::string& target, std::uint32_t seed) : random_(seed) {
    const std::size_t colon = target.rfind(':');
    target_.sin_family = AF_INET;
    target_.sin_port = htons(static_cast<std::uint16_t>(std::atoi(target.c_str() + colon + 1)));
    inet_pton(AF_INET, target.substr(0, colon).c_str(), &target_.sin_addr);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&here), size) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) != 0) {
      std::abort();
    }
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~FaultProxy() {
    ending_ = true;
    thread_.join();
    while (!pairs_.empty()) End(pairs_.begin());
    close(listener_);
  }
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  // Each piece waits so long at most.
  void Delay(std::chrono::milliseconds most) { delay_us_ = most.count() * 1000; }
  // Of what comes next, on each connection, some bytes get through, and then it is cut.
  void CutSoon() { cut_ = true; }
  // Nothing gets through any more, and nobody is told.
  void Swallow(bool yes) { swallow_ = yes; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] int cuts() const { return cuts_; }

 private:
  struct Piece {
    std::int64_t due_us = 0;
    std::string bytes;
  };
  struct Direction {
    int from = -1;
    int to = -1;
    std::deque<Piece> pieces;
  };
  struct Pair {
    int sockets[2] = {-1, -1};
    Direction ways[2];
    std::int64_t left = -1;  // bytes until it is cut; -1: it is not
  };

  static std::int64_t NowUs() {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
  }
  void End(std::list<Pair>::iterator it) {
    const linger hard{1, 0};  // a reset, in the middle of whatever was being said
    for (const int one : it->sockets) {
      setsockopt(one, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      close(one);
    }
    pairs_.erase(it);
  }
  void Accept() {
    const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (near < 0) return;
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(far, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0) {
      close(near);
      close(far);
      return;
    }
    fcntl(far, F_SETFL, O_NONBLOCK);
    const int yes = 1;
    for (const int one : {near, far}) setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Pair& pair = pairs_.emplace_back();
    pair.sockets[0] = near;
    pair.sockets[1] = far;
    pair.ways[0] = {near, far, {}};
    pair.ways[1] = {far, near, {}};
  }
  // False: it is over.
  bool Serve(Pair& pair) {
    const std::int64_t now = NowUs();
    char buffer[4096];
    for (Direction& way : pair.ways) {
      const std::size_t most = 1 + random_() % sizeof buffer;
      const ssize_t got = recv(way.from, buffer, most, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
      if (got > 0) {
        if (cut_ && pair.left < 0) pair.left = static_cast<std::int64_t>(random_() % 64);
        const std::int64_t delay = delay_us_ == 0 ? 0 : static_cast<std::int64_t>(random_() % delay_us_);
        const std::int64_t before = way.pieces.empty() ? 0 : way.pieces.back().due_us;
        way.pieces.push_back({std::max(before, now + delay), std::string(buffer, static_cast<std::size_t>(got))});
      }
      while (!way.pieces.empty() && way.pieces.front().due_us <= now) {
        std::string& bytes = way.pieces.front().bytes;
        if (swallow_) bytes.clear();
        if (pair.left >= 0 && static_cast<std::int64_t>(bytes.size()) > pair.left) {
          static_cast<void>(send(way.to, bytes.data(), static_cast<std::size_t>(pair.left), MSG_NOSIGNAL));
          ++cuts_;
          return false;
        }
        const ssize_t sent = bytes.empty() ? 0 : send(way.to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent > 0) bytes_ += static_cast<std::uint64_t>(sent);
        if (sent > 0 && pair.left >= 0) pair.left -= sent;
        bytes.erase(0, sent > 0 ? static_cast<std::size_t>(sent) : 0);
        if (!bytes.empty()) break;
        way.pieces.pop_front();
      }
    }
    return true;
  }
  void Run() {
    while (!ending_) {
      std::vector<pollfd> wait{{listener_, POLLIN, 0}};
      bool held = false;
      for (const Pair& pair : pairs_) {
        for (const int one : pair.sockets) wait.push_back({one, POLLIN, 0});
        held = held || !pair.ways[0].pieces.empty() || !pair.ways[1].pieces.empty();
      }
      poll(wait.data(), wait.size(), held ? 1 : 10);
      Accept();
      for (auto it = pairs_.begin(); it != pairs_.end();) {
        const auto at = it++;
        if (!Serve(*at)) End(at);
      }
    }
  }

  std::mt19937 random_;
  sockaddr_in target_{};
  int listener_ = -1;
  std::string address_;
  std::list<Pair> pairs_;
  std::atomic<bool> ending_{false};
  std::atomic<std::uint32_t> delay_us_{0};
  std::atomic<bool> cut_{false};
  std::atomic<bool> swallow_{false};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<int> cuts_{0};
  std::thread thread_;
};

}  // namespace manta::testing
