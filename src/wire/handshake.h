// The handshake that opens every TCP connection, as two state machines without a socket, a clock or a
// random number of their own: bytes go in, bytes come out. wire/negotiation.h drives them.
//
//   dialer                                             listener
//   Hello  versions, role, cluster, key id, nonce  ->
//                                                  <-  Challenge  version, cluster, nonce
//   Proof  HMAC(token, "dialer", transcript)       ->
//                                                  <-  Accepted  HMAC(token, "listener", transcript, Proof)
//   Either side may close instead of going on; the listener may first say Refused with a reason.
//
// The transcript is the hash of Hello, of Challenge and of what binds them to this connection (under TLS, a value
// exported from its keys; else zeros). So: no token on the wire; a recorded handshake is worth nothing, for
// both nonces are fresh; a proof sent back to its maker is refused, for the two sides sign different words; a proof
// for one role, version or TLS connection does not serve for another. The dialer proves first: a stranger learns that
// something listens, and nothing signed.
//
// Every message: magic (8), type (1), zero (1), size of what follows (2, little endian), body. A side says how many
// bytes it wants next and never asks for one that might belong to what follows the handshake. Unknown trailing bytes of
// a body are ignored but signed, so that a later version can add fields.
//
// A dialer without a cluster id (zeros) takes any cluster that knows the token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "types/id.h"
#include "wire/secrets.h"

namespace manta::wire {

inline constexpr std::array<char, 8> kLinkMagic = {'\x8d', 'm', 'a', 'n', 't', 'a', '\r', '\n'};
inline constexpr std::size_t kLinkHeader = 12;
inline constexpr std::size_t kMaxHandshakeBody = 512;

struct VersionRange {
  std::uint16_t min = 1;
  std::uint16_t max = 1;
};

// What a connection is for; decides what is spoken after the handshake.
enum class LinkRole : std::uint8_t {
  kNode = 1,      // mantad to mantad, or mantad to control
  kControl = 2,   // any process, as a client of control
  kOwner = 3,     // an owner to a worker of another node
  kTransfer = 4,  // objects, store to store
  kTool = 5,      // the command line and other observers
  kJoin = 6,      // has no token yet, only a one-time one (wire/join.h); TLS only
};
inline constexpr std::uint32_t kAllRoles = 0x3e;  // bit 1 << role; without kJoin
[[nodiscard]] constexpr std::uint32_t RoleBit(LinkRole role) { return 1U << static_cast<unsigned>(role); }
[[nodiscard]] const char* NameOf(LinkRole role);

enum class Refusal : std::uint8_t {
  kNone = 0,
  kWrongVersion = 1,
  kWrongCluster = 2,
  kWrongToken = 3,
  kWrongRole = 4,    // not spoken on this port
  kCertificate = 5,  // TLS, but no certificate of the cluster
  kPlain = 6,        // not encrypted, and not from this machine
  kJoinToken = 7,    // unknown, expired or used
};

// What the connection beneath is known to be.
struct LinkBinding {
  bool encrypted = false;
  bool certified = false;  // the peer showed a certificate of the cluster
  Digest exported{};       // of this TLS connection alone; zeros without TLS
};

// The bytes of one message at a time.
class HandshakeReader {
 public:
  // How many bytes complete what is being read: first a header, then its body.
  [[nodiscard]] std::size_t wanted() const;
  // Takes at most wanted() bytes. True: the message is whole, see type() and body().
  Result<bool> Take(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint8_t type() const { return std::to_integer<std::uint8_t>(std::byte(buffer_[8])); }
  [[nodiscard]] std::span<const std::byte> body() const { return BytesOf(buffer_).subspan(kLinkHeader); }
  [[nodiscard]] const std::string& message() const { return buffer_; }
  void Clear() { buffer_.clear(); }

 private:
  std::string buffer_;
};

class DialerHandshake {
 public:
  struct Options {
    LinkRole role = LinkRole::kTool;
    Id cluster;
    Token key{};  // the cluster's token, or a one-time key for kJoin
    VersionRange versions;
    std::array<std::byte, 32> nonce{};  // fresh
    LinkBinding binding;
  };
  explicit DialerHandshake(const Options& options);

  // What to send; taken by the caller.
  [[nodiscard]] std::string TakeOutgoing() { return std::exchange(outgoing_, {}); }
  [[nodiscard]] std::size_t wanted() const { return done_ ? 0 : reader_.wanted(); }
  // A failure says what is wrong with the peer, or what the peer says is wrong with us. Final.
  Status Take(std::span<const std::byte> bytes);
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] std::uint16_t version() const { return version_; }
  [[nodiscard]] const Id& cluster() const { return cluster_; }  // the listener's
  [[nodiscard]] Refusal refusal() const { return refusal_; }    // what it said

 private:
  Status OnChallenge();
  Status OnAccepted();
  Status OnRefused();

  Options options_;
  HandshakeReader reader_;
  std::string hello_;
  std::string outgoing_;
  Digest transcript_{};
  Digest proof_{};
  bool proven_ = false;
  bool done_ = false;
  std::uint16_t version_ = 0;
  Id cluster_;
  Refusal refusal_ = Refusal::kNone;
};

class ListenerHandshake {
 public:
  struct Options {
    Id cluster;
    std::uint32_t roles = kAllRoles;
    VersionRange versions;
    std::array<std::byte, 32> nonce{};  // fresh
    LinkBinding binding;
    bool plain_is_local = true;  // an unencrypted connection has both ends on this machine
    // The key that is meant, if there is such a one.
    std::function<std::optional<Token>(LinkRole role, const KeyId& id)> find_key;
    // The peer has proved it has this key; false: too late (a one-time key was used meanwhile).
    std::function<bool(LinkRole role, const KeyId& id)> on_proven;
  };
  explicit ListenerHandshake(Options options);

  [[nodiscard]] std::string TakeOutgoing() { return std::exchange(outgoing_, {}); }
  [[nodiscard]] std::size_t wanted() const { return done_ ? 0 : reader_.wanted(); }
  // A failure is final. Outgoing then holds the refusal, if the peer is to be told.
  Status Take(std::span<const std::byte> bytes);
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] Refusal refusal() const { return refusal_; }
  [[nodiscard]] LinkRole role() const { return role_; }
  [[nodiscard]] std::uint16_t version() const { return version_; }

 private:
  Status OnHello();
  Status OnProof();
  Status Refuse(Refusal reason, std::string why);

  Options options_;
  HandshakeReader reader_;
  std::string outgoing_;
  Refusal refusal_ = Refusal::kNone;
  LinkRole role_ = LinkRole::kTool;
  std::uint16_t version_ = 0;
  KeyId key_id_{};
  Token key_{};
  Digest transcript_{};
  bool challenged_ = false;
  bool done_ = false;
};

}  // namespace manta::wire
