#include "control/redis_connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace manta::control {
namespace {

constexpr std::size_t kReadBuffer = 128U << 10;

}  // namespace

Result<RedisAddress> ResolveRedis(const std::string& text) {
  RedisAddress out;
  out.text = text;
  if (text.starts_with("unix:")) {
    const std::string path = text.substr(5);
    sockaddr_un name{};
    if (path.empty() || path.size() >= sizeof name.sun_path) {
      return Status(Code::kInvalid,
                    Cat("Redis address '", text, "': the path is empty or over ", sizeof name.sun_path - 1, " bytes"));
    }
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.data(), path.size());
    std::memcpy(&out.address, &name, sizeof name);
    out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
    out.local = true;
    return out;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return Status(Code::kInvalid, Cat("Redis address '", text, "': give unix:/path or host:port"));
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found);
  if (error != 0) return Status(Code::kInvalid, Cat("Redis address '", text, "': ", gai_strerror(error)));
  std::memcpy(&out.address, found->ai_addr, found->ai_addrlen);
  out.size = found->ai_addrlen;
  freeaddrinfo(found);
  return out;
}

RedisConnection::~RedisConnection() {
  *alive_ = false;
  if (watching_ != 0) loop_.Unwatch(socket_.get());
  if (closing_ != 0) loop_.Cancel(closing_);
}

Status RedisConnection::Start(const RedisAddress& address) {
  name_ = address.text;
  socket_.Reset(socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_.valid()) return Status(Code::kIo, Cat("cannot make a socket: ", std::strerror(errno)));
  if (!address.local) {
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as every dialled socket (wire/dial.cc)
  }
  const auto* to = reinterpret_cast<const sockaddr*>(&address.address);
  if (connect(socket_.get(), to, address.size) == 0) {
    connected_ = true;
  } else if (errno != EINPROGRESS) {
    return Status(Code::kUnavailable, Cat("cannot connect to Redis at ", name_, ": ", std::strerror(errno)));
  }
  watching_ = connected_ ? EPOLLIN : EPOLLOUT;
  Status status = loop_.Watch(socket_.get(), watching_, [this](std::uint32_t events) { OnEvents(events); });
  if (!status.ok()) watching_ = 0;
  return status;
}

void RedisConnection::Close(const Status& why) {
  if (closed_) return;
  closed_ = true;
  connected_ = false;
  if (watching_ != 0) loop_.Unwatch(socket_.get());
  watching_ = 0;
  socket_.Reset(-1);
  closing_ = loop_.After(0, [this, why] {
    closing_ = 0;
    const OnClose callback = on_close_;  // which destroys this object
    callback(why);
  });
}

void RedisConnection::Send(std::string_view commands, std::size_t replies, OnReplies done) {
  if (closed_) return;
  calls_.push_back(Call{replies, std::move(done)});
  const bool idle = outgoing_.empty() && connected_;
  if (idle) {
    const ssize_t count = send(socket_.get(), commands.data(), commands.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) commands.remove_prefix(static_cast<std::size_t>(count));
    if (commands.empty()) return;
  }
  outgoing_ += commands;
  WatchFor();
}

void RedisConnection::OnEvents(std::uint32_t events) {
  const std::shared_ptr<bool> alive = alive_;
  if (!connected_) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      return Close(Status(Code::kUnavailable, Cat("cannot connect to Redis at ", name_, ": ", std::strerror(error))));
    }
    connected_ = true;
    WatchFor();
  }
  if ((events & EPOLLOUT) != 0) Write();
  if (*alive && !closed_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read();
}

void RedisConnection::Read() {
  const std::shared_ptr<bool> alive = alive_;
  thread_local const auto memory = std::make_unique_for_overwrite<std::byte[]>(kReadBuffer);
  const std::span<std::byte> buffer(memory.get(), kReadBuffer);
  ssize_t count = 0;
  do {
    count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  if (count <= 0) {
    return Close(Status(Code::kUnavailable, Cat("Redis at ", name_, " closed the connection",
                                                count < 0 ? Cat(": ", std::strerror(errno)) : std::string())));
  }
  parser_.Add(buffer.first(static_cast<std::size_t>(count)));
  for (;;) {
    RespReply reply;
    const Result<bool> next = parser_.Next(&reply);
    if (!next.ok()) return Close(Status(next.status().code(), Cat(next.status().message(), " (at ", name_, ")")));
    if (!next.value()) return;
    if (calls_.empty()) return Close(Status(Code::kCorrupt, Cat("Redis at ", name_, " answers what nobody asked")));
    replies_.push_back(std::move(reply));
    if (replies_.size() < calls_.front().replies) continue;
    const Call call = std::move(calls_.front());
    calls_.pop_front();
    std::vector<RespReply> replies = std::exchange(replies_, {});
    call.done(replies);
    if (!*alive || closed_) return;
  }
}

void RedisConnection::Write() {
  while (sent_ < outgoing_.size()) {
    const ssize_t count =
        send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;  // a broken connection is seen by the next read
    sent_ += static_cast<std::size_t>(count);
  }
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
  }
  WatchFor();
}

void RedisConnection::WatchFor() {
  if (closed_) return;
  const std::uint32_t events = !connected_ ? EPOLLOUT : outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (events == watching_) return;
  watching_ = events;
  loop_.Change(socket_.get(), events);
}

}  // namespace manta::control
