#include "control/http_call.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace manta::control {
namespace {

constexpr std::size_t kMaxHead = 64U << 10;

Status NotHttp(std::string_view what) { return Status(Code::kCorrupt, Cat("the answer is not HTTP: ", what)); }

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + ('a' - 'A')) : byte; });
  return out;
}

}  // namespace

Status HttpReply::Add(std::string_view bytes) {
  if (complete_) return {};
  if (bytes_.size() + body_.size() + bytes.size() > kMaxBytes) return NotHttp("it is too large");
  bytes_ += bytes;
  if (!head_) {
    if (Status status = ReadHead(); !status.ok() || !head_) return status;
  }
  if (chunked_) return ReadChunks();
  body_ += bytes_;
  bytes_.clear();
  if (sized_ && body_.size() >= size_) {
    body_.resize(size_);
    complete_ = true;
  }
  return {};
}

Status HttpReply::End() {
  if (complete_) return {};
  if (!head_ || chunked_ || sized_) return Status(Code::kUnavailable, "the connection was closed before the answer");
  complete_ = true;
  return {};
}

Status HttpReply::ReadHead() {
  const std::size_t end = bytes_.find("\r\n\r\n");
  if (end == std::string::npos) return bytes_.size() > kMaxHead ? NotHttp("its head does not end") : Status();
  const std::string head = Lower(std::string_view(bytes_).substr(0, end + 2));
  if (!head.starts_with("http/1.") || head.size() < 12 ||
      std::from_chars(head.data() + 9, head.data() + 12, status_).ptr != head.data() + 12) {
    return NotHttp(std::string_view(head).substr(0, 40));
  }
  for (std::size_t line = head.find("\r\n") + 2; line < head.size();) {
    const std::size_t stop = head.find("\r\n", line);
    const std::string_view one = std::string_view(head).substr(line, stop - line);
    line = stop + 2;
    const std::size_t colon = one.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = one.substr(0, colon);
    std::string_view value = one.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    if (name == "transfer-encoding" && value.find("chunked") != std::string_view::npos) chunked_ = true;
    if (name == "content-length") {
      sized_ = true;
      if (std::from_chars(value.data(), value.data() + value.size(), size_).ec != std::errc{} || size_ > kMaxBytes) {
        return NotHttp("its length makes no sense");
      }
    }
  }
  bytes_.erase(0, end + 4);
  head_ = true;
  return {};
}

Status HttpReply::ReadChunks() {
  for (;;) {
    const std::size_t line = bytes_.find("\r\n");
    if (line == std::string::npos) return bytes_.size() > kMaxHead ? NotHttp("a chunk has no length") : Status();
    std::size_t size = 0;
    if (std::from_chars(bytes_.data(), bytes_.data() + line, size, 16).ec != std::errc{} || size > kMaxBytes) {
      return NotHttp("a chunk has no length");
    }
    if (size == 0) {
      complete_ = true;
      return {};
    }
    if (bytes_.size() < line + 2 + size + 2) return {};
    body_.append(bytes_, line + 2, size);
    bytes_.erase(0, line + 2 + size + 2);
  }
}

HttpCall::HttpCall(base::Loop& loop, const wire::SocketAddress& address, const std::string& name, std::string_view path,
                   std::string_view body, std::int64_t timeout_us, OnDone done)
    : loop_(loop), name_(name), done_(std::move(done)) {
  outgoing_ =
      Cat("POST ", path, " HTTP/1.1\r\nHost: ", name_,
          "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  timer_ = loop_.After(timeout_us, [this, timeout_us] {
    timer_ = 0;
    Finish(Failure(Cat("no answer within ", timeout_us / 1000, " ms")));
  });
  begin_ = loop_.After(0, [this, address] {
    begin_ = 0;
    Start(address);
  });
}

HttpCall::~HttpCall() {
  if (watched_) loop_.Unwatch(socket_.get());
  if (timer_ != 0) loop_.Cancel(timer_);
  if (begin_ != 0) loop_.Cancel(begin_);
}

Status HttpCall::Failure(std::string_view what) const { return Status(Code::kUnavailable, Cat(name_, ": ", what)); }

void HttpCall::Start(const wire::SocketAddress& address) {
  socket_.Reset(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_.valid()) return Finish(Failure(std::strerror(errno)));
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as every dialled socket (wire/dial.cc)
  if (connect(socket_.get(), address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return Finish(Failure(std::strerror(errno)));
  }
  const Status status = loop_.Watch(socket_.get(), EPOLLOUT, [this](std::uint32_t events) { OnEvents(events); });
  if (!status.ok()) return Finish(status);
  watched_ = true;
}

void HttpCall::OnEvents(std::uint32_t events) {
  if (!outgoing_.empty() && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    const ssize_t count = send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return Finish(Failure(std::strerror(errno)));
    outgoing_.erase(0, static_cast<std::size_t>(count));
    if (outgoing_.empty()) loop_.Change(socket_.get(), EPOLLIN);
    return;
  }
  std::array<char, 16384> buffer{};
  const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) return Finish(Failure(std::strerror(errno)));
  const Status status =
      count == 0 ? reply_.End() : reply_.Add(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
  if (!status.ok()) return Finish(Status(status.code(), Cat(name_, ": ", status.message())));
  if (reply_.complete()) Finish(std::move(reply_));
}

void HttpCall::Finish(Result<HttpReply> reply) {
  if (watched_) loop_.Unwatch(socket_.get());
  watched_ = false;
  loop_.Cancel(std::exchange(timer_, 0));
  const OnDone done = std::move(done_);
  done(std::move(reply));  // which may destroy this object
}

}  // namespace manta::control
