#include "wire/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "wire/authority.h"

namespace manta::wire {
namespace {

constexpr int kAcceptPerTurn = 32;          // others have their turn between
constexpr std::int64_t kPauseUs = 100'000;  // out of descriptors

}  // namespace

struct Listener::Pending {
  Pending(base::Fd socket, Negotiation::ListenSide side) : negotiation(std::move(socket), std::move(side)) {}

  Negotiation negotiation;
  int fd = -1;
  bool watched = false;
  base::Loop::TimerId timer = 0;
  std::string peer;
  // After the handshake of a join:
  bool joining = false;
  Link link;
  FrameReader reader;
  std::size_t received = 0;
  std::string reply;
  std::size_t sent = 0;
};

Result<std::unique_ptr<Listener>> Listener::Create(base::Loop& loop, ListenOptions options, OnLink on_link,
                                                   OnNote on_note) {
  if (!options.secrets) return Status(Code::kInvalid, "a listener needs the cluster's secrets");
  auto listener =
      std::unique_ptr<Listener>(new Listener(loop, std::move(options), std::move(on_link), std::move(on_note)));
  if (Status status = listener->Bind(); !status.ok()) return status;
  return listener;
}

Listener::Listener(base::Loop& loop, ListenOptions options, OnLink on_link, OnNote on_note)
    : loop_(loop), options_(std::move(options)), on_link_(std::move(on_link)), on_note_(std::move(on_note)) {}

Listener::~Listener() {
  while (!pending_.empty()) Drop(pending_.begin());
  if (watched_) loop_.Unwatch(socket_.get());
  if (pause_ != 0) loop_.Cancel(pause_);
}

Status Listener::Bind() {
  const Result<Address> address = ParseAddress(options_.address);
  if (!address.ok()) return address.status();
  const Result<std::vector<SocketAddress>> found = Resolve(address.value());
  if (!found.ok()) return found.status();
  const SocketAddress& target = found.value().front();
  if (!target.loopback() && !options_.tls) {
    return Status(Code::kInvalid, Cat("refusing to listen at ", options_.address,
                                      ": other machines could reach it and read along; switch TLS "
                                      "on (--tls), or listen at 127.0.0.1 only"));
  }
  if (options_.tls) {
    const std::vector<std::string> hosts =
        target.loopback() ? std::vector<std::string>() : NamesFor(target, address.value().host);
    if (Status status = EnsureCertificate(*options_.secrets, hosts); !status.ok()) return status;
    if (const auto member = options_.secrets->Member(); !member.ok()) return member.status();
  }
  if (options_.accept_joins && !(options_.tls && HasAuthority(options_.secrets->folder()))) {
    return Status(Code::kInvalid, "nodes can join only at the head, which has the cluster's authority, and with TLS");
  }
  socket_ = base::Fd(socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) return Status(Code::kIo, Cat("cannot make a socket: ", std::strerror(errno)));
  // A restarted daemon gets its port back although connections of the last one linger.
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // [::] serves IPv4, too, whatever net.ipv6.bindv6only says.
  const int off = 0;
  if (target.storage.ss_family == AF_INET6 && target.any()) {
    setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(socket_.get(), target.get(), target.size) != 0) {
    const Code code = errno == EADDRINUSE || errno == EADDRNOTAVAIL || errno == EACCES ? Code::kInvalid : Code::kIo;
    return Status(code, Cat("cannot listen at ", options_.address, ": ", std::strerror(errno),
                            errno == EADDRINUSE      ? "; stop who has it, or name another port (0: any)"
                            : errno == EADDRNOTAVAIL ? "; name an address that this machine has"
                                                     : ""));
  }
  address_ = ReachedAt(LocalOf(socket_.get())).text();
  return options_.later ? Status() : Begin();
}

Status Listener::Begin() {
  if (listen(socket_.get(), options_.backlog) != 0) {
    return Status(Code::kIo, Cat("cannot listen at ", options_.address, ": ", std::strerror(errno),
                                 errno == EADDRINUSE ? "; stop who has it, or name another port (0: any)" : ""));
  }
  const Status status = loop_.Watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { Accept(); });
  watched_ = status.ok();
  return status;
}

ListenerHandshake::Options Listener::HandshakeOptions() {
  ListenerHandshake::Options handshake;
  handshake.cluster = options_.secrets->keys().cluster;
  handshake.roles = options_.roles & ~RoleBit(LinkRole::kJoin);
  if (options_.accept_joins) handshake.roles |= RoleBit(LinkRole::kJoin);
  handshake.versions = options_.versions;
  const std::shared_ptr<Secrets> secrets = options_.secrets;
  handshake.find_key = [secrets](LinkRole role, const KeyId& id) -> std::optional<Token> {
    if (role == LinkRole::kJoin) return FindJoinKey(*secrets, id, UnixNow());
    const Keys keys = secrets->keys();
    if (IdOf(keys.token) == id) return keys.token;
    if (keys.has_previous && keys.previous_until > UnixNow() && IdOf(keys.previous) == id) return keys.previous;
    return std::nullopt;
  };
  handshake.on_proven = [secrets](LinkRole role, const KeyId& id) {
    return role != LinkRole::kJoin || TakeJoinKey(*secrets, id, UnixNow());
  };
  return handshake;
}

void Listener::Accept() {
  for (int i = 0; i < kAcceptPerTurn; ++i) {
    base::Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Out of descriptors or memory: the connection waits in the kernel, so do we.
      const int error = errno;
      loop_.Change(socket_.get(), 0);
      pause_ = loop_.After(kPauseUs, [this] {
        pause_ = 0;
        loop_.Change(socket_.get(), EPOLLIN);
      });
      Note(address_,
           Status(Code::kIo, Cat("cannot accept a connection: ", std::strerror(error), "; raise `ulimit -n`")));
      return;
    }
    if (pending_.size() >= options_.max_pending) {
      ++counters_.pushed_out;
      Drop(pending_.begin());
    }
    Negotiation::ListenSide side;
    side.handshake = HandshakeOptions();
    if (options_.tls) {
      if (Result<std::shared_ptr<TlsContext>> member = options_.secrets->Member(); member.ok()) side.tls = *member;
    }
    const int fd = socket.get();
    const Place place = pending_.insert(pending_.end(), std::make_unique<Pending>(std::move(socket), std::move(side)));
    Pending& one = **place;
    one.fd = fd;
    one.peer = PeerOf(fd).text();
    one.timer = loop_.After(options_.handshake_limit_us, [this, place] {
      (*place)->timer = 0;
      ++counters_.timed_out;
      const std::string peer = (*place)->peer;
      Drop(place);
      Note(peer, Status(Code::kTimedOut,
                        Cat("no whole handshake within ", options_.handshake_limit_us / 1000, " ms: cut off")));
    });
    // From the loop, not from here: a callback may destroy the listener.
    Watch(place, EPOLLIN);
  }
}

void Listener::Watch(Place place, std::uint32_t events) {
  Pending& one = **place;
  if (one.watched) {
    loop_.Change(one.fd, events);
    return;
  }
  one.watched = loop_
                    .Watch(one.fd, events,
                           [this, place](std::uint32_t) { (*place)->joining ? AdvanceJoin(place) : Advance(place); })
                    .ok();
}

void Listener::Drop(Place place) {
  Pending& one = **place;
  if (one.watched) loop_.Unwatch(one.fd);
  if (one.timer != 0) loop_.Cancel(one.timer);
  pending_.erase(place);
}

void Listener::Advance(Place place) {
  Pending& one = **place;
  switch (one.negotiation.Advance()) {
    case Negotiation::Step::kWantsRead:
      return Watch(place, EPOLLIN);
    case Negotiation::Step::kWantsWrite:
      return Watch(place, EPOLLOUT);
    case Negotiation::Step::kFailed:
      return Fail(place);
    case Negotiation::Step::kDone:
      break;
  }
  Link link = one.negotiation.TakeLink();
  if (link.role == LinkRole::kJoin) {
    one.joining = true;
    one.link = std::move(link);
    return AdvanceJoin(place);
  }
  Drop(place);
  ++counters_.accepted;
  const OnLink callback = on_link_;  // which may destroy this object
  callback(std::move(link));
}

void Listener::Fail(Place place) {
  Count((*place)->negotiation);
  const std::string peer = (*place)->peer;
  const Status why = (*place)->negotiation.why();
  Drop(place);
  Note(peer, why);
}

void Listener::AdvanceJoin(Place place) {
  Pending& one = **place;
  Stream& stream = one.link.stream;
  const auto give_up = [&](const Status& why) {
    const std::string peer = one.peer;
    ++counters_.gone;
    Drop(place);
    Note(peer, Status(why.code(), Cat("join broken off: ", why.message())));
  };
  while (one.reply.empty()) {
    std::array<std::byte, 4096> buffer;
    const IoResult got = stream.Read(buffer);
    if (got.state == IoState::kWouldBlock) return Watch(place, EPOLLIN);
    if (got.state == IoState::kFailed) return give_up(stream.failure());
    one.received += got.bytes;
    if (got.state == IoState::kClosed || one.received > kMaxJoinBytes) {
      return give_up(Status(Code::kUnavailable, "closed, or too long"));
    }
    one.reader.Add(std::span(buffer).first(got.bytes), {});
    Frame frame;
    const Result<bool> whole = one.reader.Next(&frame);
    if (!whole.ok()) return give_up(whole.status());
    if (!whole.value()) continue;
    const Result<JoinRequest> request = frame.As<JoinRequest>();
    if (!request.ok()) return give_up(request.status());
    one.reply = EncodeFrame(AnswerJoin(*options_.secrets, request.value(), one.link.peer.host()));
  }
  while (one.sent < one.reply.size() || stream.WantsWrite()) {
    const IoResult sent = stream.Write(BytesOf(one.reply).subspan(one.sent));
    if (sent.state == IoState::kWouldBlock) return Watch(place, EPOLLOUT);
    if (sent.state == IoState::kClosed) return give_up(Status(Code::kUnavailable, "closed"));
    if (sent.state != IoState::kSome) return give_up(stream.failure());
    one.sent += sent.bytes;
  }
  ++counters_.joined;
  const std::string peer = one.peer;
  Drop(place);
  Note(peer, Status());
}

void Listener::Count(const Negotiation& negotiation) {
  switch (negotiation.failure()) {
    case Negotiation::Failure::kNone:
      return;
    case Negotiation::Failure::kGarbage:
      ++counters_.garbage;
      return;
    case Negotiation::Failure::kTls:
      ++counters_.tls_failed;
      return;
    case Negotiation::Failure::kGone:
      ++counters_.gone;
      return;
    case Negotiation::Failure::kOtherUser:
      ++counters_.other_user;
      return;
    case Negotiation::Failure::kRefused:
      break;
  }
  ++counters_.refused;
  switch (negotiation.refusal()) {
    case Refusal::kWrongVersion:
      ++counters_.wrong_version;
      break;
    case Refusal::kWrongCluster:
      ++counters_.wrong_cluster;
      break;
    case Refusal::kWrongToken:
      ++counters_.wrong_token;
      break;
    case Refusal::kWrongRole:
      ++counters_.wrong_role;
      break;
    case Refusal::kPlain:
      ++counters_.not_encrypted;
      break;
    case Refusal::kCertificate:
      ++counters_.no_certificate;
      break;
    case Refusal::kJoinToken:
      ++counters_.bad_join_token;
      break;
    case Refusal::kNone:
      break;
  }
}

void Listener::Note(const std::string& peer, const Status& what) {
  const OnNote callback = on_note_;  // which may destroy this object
  if (!callback) return;
  if (what.ok()) return callback(peer, what);  // a join is no stranger's
  const std::int64_t now = base::NowMicros();
  std::uint64_t untold = 0;
  if (now - notes_since_ > kNotesUs) {
    untold = notes_ > kNotes ? notes_ - kNotes : 0;
    notes_since_ = now;
    notes_ = 0;
  }
  if (++notes_ > kNotes) return;
  callback(peer, untold == 0 ? what
                             : Status(what.code(), Cat(what.message(), " (and ", untold, " others were turned away)")));
}

Result<std::unique_ptr<BlockingListener>> BlockingListener::Create(ListenOptions options) {
  auto made = std::make_unique<BlockingListener>();
  Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
  if (!loop.ok()) return loop.status();
  made->loop_ = std::move(*loop);
  BlockingListener* const self = made.get();
  Result<std::unique_ptr<Listener>> listener = Listener::Create(
      *made->loop_, std::move(options), [self](Link link) { self->ready_.push_back(std::move(link)); });
  if (!listener.ok()) return listener.status();
  made->listener_ = std::move(*listener);
  return made;
}

Result<Link> BlockingListener::Accept(std::int64_t timeout_us) {
  const std::int64_t deadline = base::NowMicros() + timeout_us;
  while (ready_.empty()) {
    const std::int64_t left = timeout_us < 0 ? -1 : deadline - base::NowMicros();
    if (timeout_us >= 0 && left <= 0) return Status(Code::kTimedOut, Cat("nobody connected to ", address()));
    loop_->RunOnce(left);
  }
  Link link = std::move(ready_.front());
  ready_.pop_front();
  return link;
}

}  // namespace manta::wire
