// How a machine becomes a node of a cluster it knows nothing of but one printed line, the join token:
//
//   manta-join-…   = address of the head, fingerprint of its authority, a one-time secret, a checksum
//
// The new node dials the head over TLS and believes it because its certificate comes from the authority with that
// fingerprint. It proves the one-time secret by the usual handshake (role kJoin), sends a certificate request, and gets
// the cluster's id, its token, the authority's certificate and its own. The head keeps only hashes of one-time secrets,
// with an expiry; each is gone from its file, and on disk, before the node is answered.
//
// A join token is a secret until it is used: print it to the terminal of who asked, pass it on by a file or standard
// input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/secrets.h"

namespace manta::wire {

struct JoinToken {
  std::string address;  // "host:port" of the head
  Digest authority{};   // fingerprint
  std::array<std::byte, 16> secret{};
};
[[nodiscard]] std::string FormatJoinToken(const JoinToken& token);
Result<JoinToken> ParseJoinToken(std::string_view text);
// What the handshake is keyed with, and what the head keeps.
[[nodiscard]] Token JoinKey(const JoinToken& token);

// ---- on the head ----

// A new join token, good once and for `seconds`. Needs the authority (EnsureCertificate).
Result<std::string> MakeJoinToken(Secrets& secrets, const std::string& address, std::int64_t seconds);
// The key with this id, if it has not expired.
std::optional<Token> FindJoinKey(const Secrets& secrets, const KeyId& id, std::int64_t now);
// Uses it up: true for exactly one caller, once that is on disk.
bool TakeJoinKey(const Secrets& secrets, const KeyId& id, std::int64_t now);

// ---- on the joining machine ----

// Joins by a blocking dialogue of a few milliseconds and stores what it got in `folder`, which must not belong to
// another cluster. `hosts`: under what this node will be reached, besides the address the head sees.
Status Join(std::string_view join_token, const std::string& folder, const std::vector<std::string>& hosts,
            std::int64_t timeout_us = 5'000'000);

// ---- what is said after the handshake; in frames, only under TLS ----

// J -> C: all that the joining machine says; answered by JoinReply.
struct JoinRequest {
  static constexpr Kind kKind = static_cast<Kind>(0xff01);
  std::string request;             // PEM
  std::vector<std::string> hosts;  // without the address the head sees
};
struct JoinReply {
  static constexpr Kind kKind = static_cast<Kind>(0xff02);
  Id cluster;
  std::string token;  // 32 bytes
  std::string authority;
  std::string certificate;
  std::string refused;  // not empty: why not, and all others are
};
inline constexpr std::size_t kMaxJoinBytes = 64U << 10;

// The head's answer to a node whose handshake for kJoin is done. `seen`: its address.
[[nodiscard]] JoinReply AnswerJoin(Secrets& secrets, const JoinRequest& request, const std::string& seen);

}  // namespace manta::wire
