#include "wire/negotiation.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace manta::wire {
namespace {

// TLS begins with a handshake record; our magic begins with another byte.
constexpr char kTlsFirstByte = 0x16;

constexpr int kKeepIdleSeconds = 5;
constexpr int kKeepIntervalSeconds = 2;
constexpr int kKeepCount = 3;
constexpr unsigned kUserTimeoutMillis = 10'000;  // sent and not acknowledged

void Set(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); }

}  // namespace

void SetSocketOptions(int socket) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  Set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  Set(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMillis);
}

Negotiation::Negotiation(base::Fd socket, ListenSide side) : stage_(Stage::kSniffing), listen_(std::move(side)) {
  SetSocketOptions(socket.get());
  link_.local = LocalOf(socket.get());
  link_.peer = PeerOf(socket.get());
  link_.stream = Stream(std::move(socket));
  listen_->handshake.plain_is_local = link_.local.loopback() && link_.peer.loopback();
}

Negotiation::Negotiation(base::Fd socket, DialSide side) : stage_(Stage::kConnecting), dial_(std::move(side)) {
  SetSocketOptions(socket.get());
  link_.stream = Stream(std::move(socket));
}

Negotiation::Step Negotiation::Advance() {
  for (;;) {
    const Stage before = stage_;
    Step step = Step::kFailed;
    switch (stage_) {
      case Stage::kConnecting:
        step = Connect();
        break;
      case Stage::kSniffing:
        step = Sniff();
        break;
      case Stage::kTls:
        step = Tls();
        break;
      case Stage::kHandshake:
        step = Shake();
        break;
      case Stage::kEnded:
        return failure_ == Failure::kNone ? Step::kDone : Step::kFailed;
    }
    if (step != Step::kDone || stage_ == before) return step;
  }
}

// Each of the following answers kDone when it has moved on to another stage.

Negotiation::Step Negotiation::Connect() {
  pollfd one{fd(), POLLOUT, 0};
  if (poll(&one, 1, 0) == 0) return Step::kWantsWrite;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    std::string advice = error == ECONNREFUSED ? ": nobody listens there" : "";
    return Fail(Failure::kGone, Status(Code::kUnavailable, Cat(std::strerror(error), advice)));
  }
  link_.local = LocalOf(fd());
  link_.peer = PeerOf(fd());
  // Binding to no port can make a socket connect to itself; it would be its own cluster.
  if (link_.local.text() == link_.peer.text()) {
    return Fail(Failure::kGone, Status(Code::kUnavailable, "nobody listens there"));
  }
  if (dial_->tls) {
    link_.stream.StartTls(dial_->tls->Connect(fd(), dial_->name));
    stage_ = Stage::kTls;
  } else if (!link_.peer.loopback()) {
    return Fail(Failure::kTls, Status(Code::kInvalid, "a connection to another machine must be encrypted"));
  } else {
    StartHandshake();
  }
  return Step::kDone;
}

Negotiation::Step Negotiation::Sniff() {
  char first = 0;
  const ssize_t got = recv(fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kWantsRead;
  if (got <= 0) return Fail(Failure::kGone, Status(Code::kUnavailable, "closed before a word was said"));
  if (first != kTlsFirstByte) {
    StartHandshake();
    return Step::kDone;
  }
  if (!listen_->tls) return Fail(Failure::kTls, Status(Code::kInvalid, "TLS, which is not switched on for this port"));
  link_.stream.StartTls(listen_->tls->Accept(fd()));
  stage_ = Stage::kTls;
  return Step::kDone;
}

Negotiation::Step Negotiation::Tls() {
  switch (link_.stream.tls()->Handshake()) {
    case TlsSession::Step::kWantsRead:
      return Step::kWantsRead;
    case TlsSession::Step::kWantsWrite:
      return Step::kWantsWrite;
    case TlsSession::Step::kFailed:
      return Fail(Failure::kTls, Status(Code::kInvalid, Cat("TLS failed: ", link_.stream.tls()->failure())));
    case TlsSession::Step::kDone:
      break;
  }
  StartHandshake();
  return Step::kDone;
}

void Negotiation::StartHandshake() {
  LinkBinding binding;
  if (TlsSession* const tls = link_.stream.tls(); tls != nullptr) {
    binding = {true, tls->certified(), tls->Exported()};
  }
  if (listen_) {
    listen_->handshake.binding = binding;
    FillRandom(listen_->handshake.nonce);
    listener_.emplace(listen_->handshake);
  } else {
    dial_->handshake.binding = binding;
    FillRandom(dial_->handshake.nonce);
    dialer_.emplace(dial_->handshake);
    outgoing_ = dialer_->TakeOutgoing();
  }
  stage_ = Stage::kHandshake;
}

Negotiation::Step Negotiation::Send() {
  Stream& stream = link_.stream;
  while (!outgoing_.empty() || stream.WantsWrite()) {
    const IoResult sent = stream.Write(BytesOf(outgoing_));
    if (sent.state == IoState::kWouldBlock) return Step::kWantsWrite;
    if (sent.state != IoState::kSome) {
      const Status why = stream.failure();
      return Fail(stream.encrypted() ? Failure::kTls : Failure::kGone, why);
    }
    outgoing_.erase(0, sent.bytes);
  }
  return Step::kDone;
}

Negotiation::Step Negotiation::Shake() {
  for (;;) {
    if (const Step step = Send(); step != Step::kDone) return step;
    if (listener_ ? listener_->done() : dialer_->done()) {
      link_.role = listener_ ? listener_->role() : dial_->handshake.role;
      link_.version = listener_ ? listener_->version() : dialer_->version();
      link_.cluster = listener_ ? listen_->handshake.cluster : dialer_->cluster();
      stage_ = Stage::kEnded;
      return Step::kDone;
    }
    const std::size_t wanted = listener_ ? listener_->wanted() : dialer_->wanted();
    std::array<std::byte, kLinkHeader + kMaxHandshakeBody> buffer;
    const IoResult got = link_.stream.Read(std::span(buffer).first(wanted));
    if (got.state == IoState::kWouldBlock) return link_.stream.WantsWrite() ? Step::kWantsWrite : Step::kWantsRead;
    if (got.state == IoState::kFailed) {
      const Status why = link_.stream.failure();
      return Fail(link_.stream.encrypted() ? Failure::kTls : Failure::kGone, why);
    }
    if (got.state == IoState::kClosed) {
      return Fail(Failure::kGone, Status(Code::kUnavailable,
                                         "the peer closed during the handshake: not a manta port, "
                                         "or one with too many strangers at it"));
    }
    const std::span<const std::byte> bytes = std::span(buffer).first(got.bytes);
    Status status = listener_ ? listener_->Take(bytes) : dialer_->Take(bytes);
    outgoing_ = listener_ ? listener_->TakeOutgoing() : dialer_->TakeOutgoing();
    if (!status.ok()) {
      // The last word is a few bytes into an empty socket buffer: it goes now or never.
      if (!outgoing_.empty()) (void)link_.stream.Write(BytesOf(outgoing_));
      const bool garbage = status.code() == Code::kCorrupt;
      return Fail(garbage ? Failure::kGarbage : Failure::kRefused, std::move(status));
    }
  }
}

Negotiation::Step Negotiation::Fail(Failure failure, Status why) {
  if (failure_ == Failure::kNone) {
    failure_ = failure;
    why_ = std::move(why);
  }
  stage_ = Stage::kEnded;
  return Step::kFailed;
}

}  // namespace manta::wire
