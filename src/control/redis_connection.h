// RedisConnection is one connection to a Redis server on a loop: commands are sent at once, one after the other without
// waiting (pipelined), and replies are handed out in the same order.
//
// Lifetime: the owner destroys it from on_close, or later; never from inside a reply's callback (Close there, which
// calls on_close once from the loop). Commands without a reply at the close are forgotten: their owner knows them.
// Threads: one loop's.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "control/resp.h"
#include "types/status.h"

namespace manta::control {

// Where a Redis server listens, resolved.
struct RedisAddress {
  std::string text;  // as given: "unix:/run/redis.sock", "127.0.0.1:6379"
  sockaddr_storage address{};
  socklen_t size = 0;
  bool local = false;  // a Unix socket
};
// May ask the resolver, and so block.
Result<RedisAddress> ResolveRedis(const std::string& text);

class RedisConnection {
 public:
  using OnReplies = std::function<void(std::vector<RespReply>& replies)>;
  using OnClose = std::function<void(const Status& why)>;

  RedisConnection(base::Loop& loop, OnClose on_close) : loop_(loop), on_close_(std::move(on_close)) {}
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  // Starts to connect. What is sent meanwhile waits.
  Status Start(const RedisAddress& address);
  // `commands` get `replies` replies, which are told together.
  void Send(std::string_view commands, std::size_t replies, OnReplies done);
  void Close(const Status& why);

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] std::size_t waiting() const { return calls_.size(); }

 private:
  struct Call {
    std::size_t replies = 0;
    OnReplies done;
  };

  void OnEvents(std::uint32_t events);
  void Read();
  void Write();
  void WatchFor();

  base::Loop& loop_;
  OnClose on_close_;
  base::Fd socket_;
  bool connected_ = false;
  bool closed_ = false;
  std::uint32_t watching_ = 0;
  base::Loop::TimerId closing_ = 0;
  std::string name_;
  std::string outgoing_;
  std::size_t sent_ = 0;
  RespParser parser_;
  std::deque<Call> calls_;
  std::vector<RespReply> replies_;  // of the first call, so far
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
