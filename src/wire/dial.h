// Dialling: from an address to a Link whose peer has proved to be of our cluster.
//
// To this machine (127/8, ::1) connections are plain with the token's proof; to any other machine TLS with certificates
// of the cluster, always. A name that has several addresses is tried at each in turn.
//
// While a rotation spreads through the cluster (wire/secrets.h), who refuses the new token is asked again with the one
// before.
//
// Dial works on a loop and calls back once; destroying it before cancels. DialAndWait blocks a plain thread.
// Numeric addresses and "localhost" do not block a loop; other names ask the resolver: Resolve them beforehand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "wire/negotiation.h"
#include "wire/secrets.h"

namespace manta::wire {

inline constexpr std::int64_t kHandshakeLimitMicros = 5'000'000;
inline constexpr VersionRange kLinkVersions{1, 1};

struct DialOptions {
  LinkRole role = LinkRole::kTool;
  std::shared_ptr<Secrets> secrets;
  std::int64_t timeout_us = kHandshakeLimitMicros;  // connecting included
  VersionRange versions = kLinkVersions;
  bool always_tls = false;              // also to this machine
  std::string name;                     // that the certificate must carry; empty: the host that is dialled
  std::shared_ptr<TlsContext> context;  // instead of the secrets' own, with any name: for a join
};

class Dial {
 public:
  using OnDone = std::function<void(Result<Link> link)>;  // may destroy the Dial

  // Nothing is called back before the loop's next round.
  Dial(base::Loop& loop, const std::string& address, DialOptions options, OnDone on_done);
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

 private:
  void Next();     // the next address, or the end
  void Advance();  // the negotiation
  void Unwatch();
  void Finish(Result<Link> link);

  base::Loop& loop_;
  const std::string address_;
  const DialOptions options_;
  OnDone on_done_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_ = 0;
  bool previous_ = false;  // use the token from before the rotation
  std::unique_ptr<Negotiation> negotiation_;
  bool watched_ = false;
  base::Loop::TimerId timer_ = 0;
  base::Loop::TimerId begin_ = 0;
  Status last_;
};

Result<Link> DialAndWait(const std::string& address, const DialOptions& options);

}  // namespace manta::wire
