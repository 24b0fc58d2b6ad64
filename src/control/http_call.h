// HttpCall is one POST of JSON to an HTTP server and its answer, over a connection of its own: for servers that are
// asked rarely. HttpReply reads the answer, whichever way its length is told.
//
// Plain HTTP/1.1. Redirections are not followed. Threads: one loop's; the callback comes once, from the loop, unless
// the call is destroyed before; it may destroy the call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/loop.h"
#include "types/status.h"
#include "wire/address.h"

namespace manta::control {

class HttpReply {
 public:
  static constexpr std::size_t kMaxBytes = 4U << 20;

  // More of the answer. kCorrupt: it is not HTTP, or too large.
  Status Add(std::string_view bytes);
  // The connection is closed: an answer without a length ends here.
  Status End();

  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] int status() const { return status_; }  // 200 …
  [[nodiscard]] const std::string& body() const { return body_; }

 private:
  Status ReadHead();
  Status ReadChunks();

  std::string bytes_;  // not yet understood
  bool head_ = false;  // was read
  int status_ = 0;
  bool chunked_ = false;
  bool sized_ = false;
  std::size_t size_ = 0;
  std::string body_;
  bool complete_ = false;
};

class HttpCall {
 public:
  using OnDone = std::function<void(Result<HttpReply> reply)>;

  // `name` is that of the server, for messages and its Host header.
  HttpCall(base::Loop& loop, const wire::SocketAddress& address, const std::string& name, std::string_view path,
           std::string_view body, std::int64_t timeout_us, OnDone done);
  ~HttpCall();
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

 private:
  void Start(const wire::SocketAddress& address);
  void OnEvents(std::uint32_t events);
  void Finish(Result<HttpReply> reply);
  [[nodiscard]] Status Failure(std::string_view what) const;

  base::Loop& loop_;
  const std::string name_;
  std::string outgoing_;
  OnDone done_;
  base::Fd socket_;
  bool watched_ = false;
  HttpReply reply_;
  base::Loop::TimerId timer_ = 0;
  base::Loop::TimerId begin_ = 0;
};

}  // namespace manta::control
