// Listener waits at a TCP port and hands over connections whose peers have proved to be members of the cluster. Until
// then nothing is read from them but the handshake, and nothing answered but a refusal.
//
// It binds loopback unless told otherwise, and wider only with TLS. A port with TLS still takes plain connections of
// which both ends are on this machine: they cannot be overheard, and cost nothing.
//
// Strangers cannot exhaust it: at most `max_pending` connections are under way; one more pushes out the oldest, so a
// flood delays a member by a retry and not by the time limit. Who is not through after `handshake_limit_us` is cut off.
// Out of descriptors, it stops accepting for a moment instead of spinning.
//
// Strangers cannot fill the log either: after kNotes of them in kNotesUs the rest are only counted, and told in one.
//
// The head's listener also answers joins (wire/join.h), with `accept_joins`.
//
// Threads: the loop's. Callbacks come from the loop; the listener may be destroyed in one.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/loop.h"
#include "wire/dial.h"
#include "wire/join.h"
#include "wire/negotiation.h"

namespace manta::wire {

struct ListenOptions {
  std::string address = "127.0.0.1:0";  // port 0: any free one, see Listener::address
  std::shared_ptr<Secrets> secrets;
  std::uint32_t roles = kAllRoles;  // RoleBit of each that is served here
  bool tls = false;                 // makes the authority and a certificate if there are none (wire/authority.h)
  bool accept_joins = false;        // needs tls, and the authority
  VersionRange versions = kLinkVersions;
  std::size_t max_pending = 128;
  std::int64_t handshake_limit_us = kHandshakeLimitMicros;
  int backlog = 512;
  bool later = false;  // takes the port, but nobody can connect before Begin
};

// Only grow.
struct ListenCounters {
  std::uint64_t accepted = 0;  // became a Link
  std::uint64_t joined = 0;
  std::uint64_t refused = 0;  // said no, by one of:
  std::uint64_t wrong_version = 0;
  std::uint64_t wrong_cluster = 0;
  std::uint64_t wrong_token = 0;
  std::uint64_t wrong_role = 0;
  std::uint64_t not_encrypted = 0;
  std::uint64_t no_certificate = 0;
  std::uint64_t bad_join_token = 0;
  std::uint64_t other_user = 0;  // of this machine; gets no answer
  std::uint64_t garbage = 0;     // not our protocol
  std::uint64_t tls_failed = 0;  // no TLS, or a certificate of somebody else
  std::uint64_t gone = 0;        // closed by the peer
  std::uint64_t timed_out = 0;
  std::uint64_t pushed_out = 0;  // by newer ones
};

class Listener {
 public:
  static constexpr std::uint64_t kNotes = 20;
  static constexpr std::int64_t kNotesUs = 10'000'000;

  using OnLink = std::function<void(Link link)>;
  // A refused, failed or joined peer, for the log. The text is ours, never the peer's.
  using OnNote = std::function<void(const std::string& peer, const Status& what)>;

  static Result<std::unique_ptr<Listener>> Create(base::Loop& loop, ListenOptions options, OnLink on_link,
                                                  OnNote on_note = nullptr);
  ~Listener();
  // With ListenOptions::later: connections are accepted from now on.
  Status Begin();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }  // ReachedAt: "127.0.0.1:40123"
  [[nodiscard]] const ListenCounters& counters() const { return counters_; }
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }

 private:
  struct Pending;
  using Place = std::list<std::unique_ptr<Pending>>::iterator;

  Listener(base::Loop& loop, ListenOptions options, OnLink on_link, OnNote on_note);
  Status Bind();
  void Accept();
  void Advance(Place place);
  void AdvanceJoin(Place place);
  void Watch(Place place, std::uint32_t events);
  void Drop(Place place);
  void Fail(Place place);
  void Count(const Negotiation& negotiation);
  void Note(const std::string& peer, const Status& what);
  ListenerHandshake::Options HandshakeOptions();

  base::Loop& loop_;
  const ListenOptions options_;
  OnLink on_link_;
  OnNote on_note_;
  base::Fd socket_;
  std::string address_;
  bool watched_ = false;
  base::Loop::TimerId pause_ = 0;
  std::list<std::unique_ptr<Pending>> pending_;  // oldest first
  ListenCounters counters_;
  std::int64_t notes_since_ = 0;
  std::uint64_t notes_ = 0;  // since then
};

// For plain threads: a listener with a loop of its own.
class BlockingListener {
 public:
  static Result<std::unique_ptr<BlockingListener>> Create(ListenOptions options);
  // kTimedOut if nobody came. Handshakes go on only while somebody waits here.
  Result<Link> Accept(std::int64_t timeout_us);
  [[nodiscard]] const std::string& address() const { return listener_->address(); }
  [[nodiscard]] const ListenCounters& counters() const { return listener_->counters(); }

 private:
  std::unique_ptr<base::Loop> loop_;
  std::unique_ptr<Listener> listener_;
  std::list<Link> ready_;
};

}  // namespace manta::wire
