#include "wire/dial.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace manta::wire {
namespace {

Status Explain(const std::string& address, const DialOptions& options, const Status& why) {
  return Status(why.code(), Cat("cannot connect to ", address, " (as ", NameOf(options.role), "): ", why.message()));
}

// A socket on its way to `target`, and how to go on once it is there.
Result<std::unique_ptr<Negotiation>> Begin(const Address& address, const SocketAddress& target,
                                           const DialOptions& options, bool previous) {
  Negotiation::DialSide side;
  side.tls = options.context;
  if (!side.tls && (options.always_tls || !target.loopback())) {
    Result<std::shared_ptr<TlsContext>> member = options.secrets->Member();
    if (!member.ok()) return member.status();
    side.tls = std::move(*member);
    side.name = options.name.empty() ? address.host : options.name;
  }
  const Keys keys = options.secrets->keys();
  side.handshake.role = options.role;
  side.handshake.cluster = keys.cluster;
  side.handshake.key = previous && keys.has_previous ? keys.previous : keys.token;
  side.handshake.versions = options.versions;
  base::Fd socket(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status(Code::kIo, Cat("cannot make a socket: ", std::strerror(errno)));
  // The kernel gives this end any port that is free just now, which may be that of a head that is about to be started
  // again: only if both sockets say so can that one still listen at it.
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (connect(socket.get(), target.get(), target.size) != 0 && errno != EINPROGRESS) {
    const char* const advice = errno == ECONNREFUSED ? ": nobody listens there" : "";
    return Status(Code::kUnavailable, Cat(std::strerror(errno), advice));
  }
  return std::make_unique<Negotiation>(std::move(socket), std::move(side));
}

// "a:1,b:2" are several hosts of which one serves (heads); then one address of each is tried.
bool IsList(const std::string& text) { return text.find(',') != std::string::npos; }

Result<std::vector<Address>> ParseList(const std::string& text) {
  std::vector<Address> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    Result<Address> host = ParseAddress(std::string_view(text).substr(begin, end - begin));
    if (!host.ok()) return host.status();
    hosts.push_back(std::move(*host));
    begin = end + 1;
  }
  return hosts;
}

Result<std::vector<SocketAddress>> ResolveList(const std::string& text) {
  const Result<std::vector<Address>> hosts = ParseList(text);
  if (!hosts.ok()) return hosts.status();
  std::vector<SocketAddress> out;
  for (const Address& host : hosts.value()) {
    Result<std::vector<SocketAddress>> found = Resolve(host);
    if (!found.ok()) return found.status();
    if (IsList(text) && found->size() > 1) found->resize(1);
    out.insert(out.end(), found->begin(), found->end());
  }
  return out;
}

// Of the address of this number in ResolveList.
Address HostOf(const std::string& text, std::size_t index) {
  const std::vector<Address> hosts = ParseList(text).value();
  return hosts[IsList(text) ? index : 0];
}

// Each host of a list has its share of the time: one that is down must not use up that of the others.
std::int64_t ShareOf(const std::string& text, const DialOptions& options) {
  return options.timeout_us / (1 + std::count(text.begin(), text.end(), ','));
}

// What to say of several failures: the last; of several hosts that nobody listens only if that is true of all, for who
// is silent may be serving others (rules::NodeLease::Refused).
Status Worse(const std::string& text, const Status& before, const Status& now) {
  const bool refused = before.ok() || before.message().find("nobody listens") != std::string::npos;
  return refused || !IsList(text) ? now : before;
}

Status TooLate(const DialOptions& options) {
  return Status(Code::kTimedOut, Cat("no answer within ", options.timeout_us / 1000,
                                     " ms: the machine is down, unreachable, or the port ", "is not manta's"));
}

// Another address of the same name is worth a try only if nobody answered at this one.
bool WorthAnother(Negotiation::Failure failure) { return failure == Negotiation::Failure::kGone; }

// The peer may not have heard of a rotation yet.
bool TryPrevious(const Negotiation& negotiation, const DialOptions& options) {
  if (negotiation.failure() != Negotiation::Failure::kRefused || negotiation.refusal() != Refusal::kWrongToken)
    return false;
  const Keys keys = options.secrets->keys();
  return keys.has_previous && keys.previous_until > UnixNow();
}

}  // namespace

Dial::Dial(base::Loop& loop, const std::string& address, DialOptions options, OnDone on_done)
    : loop_(loop), address_(address), options_(std::move(options)), on_done_(std::move(on_done)) {
  timer_ = loop_.After(options_.timeout_us, [this] {
    timer_ = 0;
    Finish(TooLate(options_));
  });
  begin_ = loop_.After(0, [this] {
    begin_ = 0;
    Result<std::vector<SocketAddress>> found = ResolveList(address_);
    if (!found.ok()) return Finish(found.status());
    addresses_ = std::move(*found);
    Next();
  });
}

Dial::~Dial() {
  Unwatch();
  if (timer_ != 0) loop_.Cancel(timer_);
  if (begin_ != 0) loop_.Cancel(begin_);
}

void Dial::Unwatch() {
  if (watched_) loop_.Unwatch(negotiation_->fd());
  watched_ = false;
}

void Dial::Next() {
  Unwatch();
  negotiation_.reset();
  while (next_ < addresses_.size()) {
    const Address host = HostOf(address_, next_);
    const SocketAddress& target = addresses_[next_++];
    Result<std::unique_ptr<Negotiation>> begun = Begin(host, target, options_, previous_);
    if (!begun.ok()) {
      last_ = Worse(address_, last_, begun.status());
      continue;
    }
    if (IsList(address_)) {
      if (timer_ != 0) loop_.Cancel(timer_);
      timer_ = loop_.After(ShareOf(address_, options_), [this] {
        timer_ = 0;
        last_ = Worse(address_, last_, TooLate(options_));
        Next();
      });
    }
    negotiation_ = std::move(*begun);
    const Status status = loop_.Watch(negotiation_->fd(), EPOLLOUT, [this](std::uint32_t) { Advance(); });
    if (!status.ok()) return Finish(status);
    watched_ = true;
    return;
  }
  Finish(last_);
}

void Dial::Advance() {
  switch (negotiation_->Advance()) {
    case Negotiation::Step::kWantsRead:
      loop_.Change(negotiation_->fd(), EPOLLIN);
      return;
    case Negotiation::Step::kWantsWrite:
      loop_.Change(negotiation_->fd(), EPOLLOUT);
      return;
    case Negotiation::Step::kFailed:
      last_ = Worse(address_, last_, negotiation_->why());
      if (!previous_ && TryPrevious(*negotiation_, options_)) {
        previous_ = true;
        --next_;
        return Next();
      }
      if (WorthAnother(negotiation_->failure())) return Next();
      return Finish(last_);
    case Negotiation::Step::kDone:
      Unwatch();
      return Finish(negotiation_->TakeLink());
  }
}

void Dial::Finish(Result<Link> link) {
  Unwatch();
  if (timer_ != 0) loop_.Cancel(timer_);
  timer_ = 0;
  const OnDone callback = std::move(on_done_);
  if (!link.ok()) link = Explain(address_, options_, link.status());
  negotiation_.reset();
  callback(std::move(link));  // which may destroy this object
}

Result<Link> DialAndWait(const std::string& address, const DialOptions& options) {
  std::int64_t deadline = base::NowMicros() + options.timeout_us;
  if (const Result<std::vector<Address>> parsed = ParseList(address); !parsed.ok()) return parsed.status();
  const Result<std::vector<SocketAddress>> found = ResolveList(address);
  if (!found.ok()) return Explain(address, options, found.status());
  Status last;
  bool previous = false;
  for (std::size_t i = 0; i < found.value().size();) {
    if (IsList(address)) deadline = base::NowMicros() + ShareOf(address, options);
    Result<std::unique_ptr<Negotiation>> begun = Begin(HostOf(address, i), found.value()[i], options, previous);
    if (!begun.ok()) {
      last = Worse(address, last, begun.status());
      ++i;
      continue;
    }
    Negotiation& negotiation = **begun;
    Negotiation::Step step = negotiation.Advance();
    while (step == Negotiation::Step::kWantsRead || step == Negotiation::Step::kWantsWrite) {
      const short events = step == Negotiation::Step::kWantsRead ? POLLIN : POLLOUT;
      if (!WaitFor(negotiation.fd(), events, deadline)) break;
      step = negotiation.Advance();
    }
    if (step == Negotiation::Step::kWantsRead || step == Negotiation::Step::kWantsWrite) {
      last = Worse(address, last, TooLate(options));
      if (!IsList(address)) break;
      ++i;
      continue;
    }
    if (step == Negotiation::Step::kDone) return negotiation.TakeLink();
    last = Worse(address, last, negotiation.why());
    if (!previous && TryPrevious(negotiation, options)) {
      previous = true;
    } else if (WorthAnother(negotiation.failure())) {
      ++i;
    } else {
      break;
    }
  }
  return Explain(address, options, last);
}

}  // namespace manta::wire
