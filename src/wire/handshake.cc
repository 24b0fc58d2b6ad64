#include "wire/handshake.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace manta::wire {
namespace {

enum class Type : std::uint8_t { kHello = 1, kChallenge = 2, kProof = 3, kAccepted = 4, kRefused = 5 };

// Laid out without padding; little endian, as every machine this runs on.
struct HelloBody {
  std::uint16_t version_min = 0;
  std::uint16_t version_max = 0;
  std::uint8_t role = 0;
  std::uint8_t unused[3] = {};
  std::uint64_t cluster[2] = {};
  KeyId key{};
  std::array<std::byte, 32> nonce{};
};
static_assert(sizeof(HelloBody) == 64);

struct ChallengeBody {
  std::uint16_t version = 0;
  std::uint8_t unused[6] = {};
  std::uint64_t cluster[2] = {};
  std::array<std::byte, 32> nonce{};
};
static_assert(sizeof(ChallengeBody) == 56);

struct ProofBody {
  Digest mac{};
};

struct RefusedBody {
  std::uint8_t reason = 0;
  std::uint8_t unused[3] = {};
  std::uint16_t version_min = 0;
  std::uint16_t version_max = 0;
  std::uint64_t cluster[2] = {};
};
static_assert(sizeof(RefusedBody) == 24);

template <typename Body>
std::string Message(Type type, const Body& body) {
  std::string bytes(kLinkHeader + sizeof body, '\0');
  std::copy(kLinkMagic.begin(), kLinkMagic.end(), bytes.begin());
  bytes[8] = static_cast<char>(type);
  const auto size = static_cast<std::uint16_t>(sizeof body);
  std::memcpy(bytes.data() + 10, &size, sizeof size);
  std::memcpy(bytes.data() + kLinkHeader, &body, sizeof body);
  return bytes;
}

template <typename Body>
Result<Body> BodyOf(const HandshakeReader& reader, Type type) {
  if (reader.type() != static_cast<std::uint8_t>(type)) {
    return Status(Code::kCorrupt, Cat("expected handshake message ", int(type), ", got ", int(reader.type())));
  }
  if (reader.body().size() < sizeof(Body)) {
    return Status(Code::kCorrupt, Cat("handshake message ", int(type), " has ", reader.body().size(),
                                      " bytes instead of ", sizeof(Body)));
  }
  Body body;
  std::memcpy(&body, reader.body().data(), sizeof body);
  return body;
}

constexpr std::string_view kDialerLabel = "manta link 1 dialer  ";
constexpr std::string_view kListenerLabel = "manta link 1 listener";
static_assert(kDialerLabel.size() == kListenerLabel.size());

Digest Transcript(std::string_view hello, std::string_view challenge, const LinkBinding& binding) {
  // Each part is hashed by itself: no two splits of the same bytes look alike.
  return Hash({Hash({BytesOf(hello)}), Hash({BytesOf(challenge)}), binding.exported});
}

std::string Range(const VersionRange& range) {
  return range.min == range.max ? Cat(range.min) : Cat(range.min, " to ", range.max);
}

}  // namespace

const char* NameOf(LinkRole role) {
  switch (role) {
    case LinkRole::kNode:
      return "node";
    case LinkRole::kControl:
      return "control client";
    case LinkRole::kOwner:
      return "owner";
    case LinkRole::kTransfer:
      return "transfer";
    case LinkRole::kTool:
      return "tool";
    case LinkRole::kJoin:
      return "join";
  }
  return "unknown";
}

// ---- HandshakeReader ----

std::size_t HandshakeReader::wanted() const {
  if (buffer_.size() < kLinkHeader) return kLinkHeader - buffer_.size();
  std::uint16_t size = 0;
  std::memcpy(&size, buffer_.data() + 10, sizeof size);
  return kLinkHeader + size - buffer_.size();
}

Result<bool> HandshakeReader::Take(std::span<const std::byte> bytes) {
  if (bytes.size() > wanted()) return Status(Code::kInvalid, "more bytes than the handshake wanted");
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // A stranger is known by its first wrong byte, not after it has sent twelve.
  const std::size_t known = std::min(buffer_.size(), kLinkMagic.size());
  if (!std::equal(kLinkMagic.begin(), kLinkMagic.begin() + static_cast<std::ptrdiff_t>(known), buffer_.begin())) {
    return Status(Code::kCorrupt, "the peer does not speak manta's protocol: not a manta port");
  }
  if (buffer_.size() < kLinkHeader) return false;
  const std::size_t rest = wanted();
  if (rest + buffer_.size() > kLinkHeader + kMaxHandshakeBody) {
    return Status(Code::kCorrupt, Cat("a handshake message of ", rest + buffer_.size() - kLinkHeader,
                                      " bytes is over the limit of ", kMaxHandshakeBody));
  }
  return rest == 0;
}

// ---- DialerHandshake ----

DialerHandshake::DialerHandshake(const Options& options) : options_(options) {
  HelloBody hello;
  hello.version_min = options_.versions.min;
  hello.version_max = options_.versions.max;
  hello.role = static_cast<std::uint8_t>(options_.role);
  hello.cluster[0] = options_.cluster.hi;
  hello.cluster[1] = options_.cluster.lo;
  hello.key = IdOf(options_.key);
  hello.nonce = options_.nonce;
  hello_ = Message(Type::kHello, hello);
  outgoing_ = hello_;
}

Status DialerHandshake::Take(std::span<const std::byte> bytes) {
  const Result<bool> whole = reader_.Take(bytes);
  if (!whole.ok()) return whole.status();
  if (!whole.value()) return {};
  Status status;
  if (reader_.type() == static_cast<std::uint8_t>(Type::kRefused)) {
    status = OnRefused();
  } else {
    status = proven_ ? OnAccepted() : OnChallenge();
  }
  reader_.Clear();
  return status;
}

Status DialerHandshake::OnChallenge() {
  const Result<ChallengeBody> challenge = BodyOf<ChallengeBody>(reader_, Type::kChallenge);
  if (!challenge.ok()) return challenge.status();
  version_ = challenge.value().version;
  if (version_ < options_.versions.min || version_ > options_.versions.max) {
    return Status(Code::kCorrupt, Cat("the listener chose protocol version ", version_, ", which was not offered (",
                                      Range(options_.versions), ")"));
  }
  cluster_ = Id{challenge.value().cluster[0], challenge.value().cluster[1]};
  if (!options_.cluster.empty() && cluster_ != options_.cluster) {
    return Status(Code::kInvalid, Cat("the port belongs to cluster ", ToString(cluster_), ", not to cluster ",
                                      ToString(options_.cluster), " whose secrets are used here"));
  }
  transcript_ = Transcript(hello_, reader_.message(), options_.binding);
  proof_ = Hmac(options_.key, {BytesOf(kDialerLabel), transcript_});
  outgoing_ = Message(Type::kProof, ProofBody{proof_});
  proven_ = true;
  return {};
}

Status DialerHandshake::OnAccepted() {
  const Result<ProofBody> accepted = BodyOf<ProofBody>(reader_, Type::kAccepted);
  if (!accepted.ok()) return accepted.status();
  if (!SameSecret(accepted.value().mac, Hmac(options_.key, {BytesOf(kListenerLabel), transcript_, proof_}))) {
    return Status(Code::kInvalid, "the listener does not know the cluster's token: it is not a member of the cluster");
  }
  Wipe(options_.key);
  done_ = true;
  return {};
}

// Says it in our words: text from somebody who has proved nothing does not reach a terminal.
Status DialerHandshake::OnRefused() {
  const Result<RefusedBody> refused = BodyOf<RefusedBody>(reader_, Type::kRefused);
  if (!refused.ok()) return refused.status();
  const RefusedBody& body = refused.value();
  refusal_ = static_cast<Refusal>(body.reason);
  switch (refusal_) {
    case Refusal::kWrongVersion:
      return Status(Code::kInvalid,
                    Cat("wrong version: it speaks protocol version ", Range({body.version_min, body.version_max}),
                        ", this program ", Range(options_.versions), "; install the same Manta on both machines"));
    case Refusal::kWrongCluster:
      return Status(Code::kInvalid,
                    Cat("wrong cluster: the port belongs to cluster ", ToString(Id{body.cluster[0], body.cluster[1]}),
                        ", the secrets used here to cluster ", ToString(options_.cluster),
                        "; check the address, or join that cluster"));
    case Refusal::kWrongToken:
      return Status(Code::kInvalid,
                    "wrong token: the cluster's token was refused; it may have been rotated: join again, or copy the "
                    "token file from the head");
    case Refusal::kWrongRole:
      return Status(Code::kInvalid, Cat("wrong port: it does not serve connections for `", NameOf(options_.role), "`"));
    case Refusal::kCertificate:
      return Status(Code::kInvalid, "no certificate of the cluster was shown: join the cluster to get one");
    case Refusal::kPlain:
      return Status(Code::kInvalid, "the port takes only TLS from other machines");
    case Refusal::kJoinToken:
      return Status(Code::kInvalid,
                    "the join token is unknown, has expired or was used already; ask the head for another one");
    case Refusal::kNone:
      break;
  }
  return Status(Code::kInvalid, Cat("refused, for reason ", int(body.reason), " that this version does not know"));
}

// ---- ListenerHandshake ----

ListenerHandshake::ListenerHandshake(Options options) : options_(std::move(options)) {}

Status ListenerHandshake::Take(std::span<const std::byte> bytes) {
  if (refusal_ != Refusal::kNone) return Status(Code::kInvalid, "refused already");
  const Result<bool> whole = reader_.Take(bytes);
  if (!whole.ok()) return whole.status();
  if (!whole.value()) return {};
  Status status = challenged_ ? OnProof() : OnHello();
  reader_.Clear();
  return status;
}

Status ListenerHandshake::OnHello() {
  const Result<HelloBody> parsed = BodyOf<HelloBody>(reader_, Type::kHello);
  if (!parsed.ok()) return parsed.status();
  const HelloBody& hello = parsed.value();
  version_ = std::min(hello.version_max, options_.versions.max);
  if (hello.version_min > hello.version_max || version_ < hello.version_min || version_ < options_.versions.min) {
    return Refuse(Refusal::kWrongVersion,
                  Cat("it speaks protocol version ", Range({hello.version_min, hello.version_max}), ", this program ",
                      Range(options_.versions)));
  }
  role_ = static_cast<LinkRole>(hello.role);
  if (!options_.binding.encrypted && !options_.plain_is_local) {
    return Refuse(Refusal::kPlain, "not encrypted, and not from this machine");
  }
  if (hello.role >= 32 || (options_.roles & RoleBit(role_)) == 0) {
    return Refuse(Refusal::kWrongRole, Cat("role ", int(hello.role), " is not served on this port"));
  }
  const Id cluster{hello.cluster[0], hello.cluster[1]};
  if (!cluster.empty() && cluster != options_.cluster) {
    return Refuse(Refusal::kWrongCluster, Cat("it belongs to cluster ", ToString(cluster)));
  }
  if (role_ == LinkRole::kJoin && !options_.binding.encrypted) {
    return Refuse(Refusal::kPlain, "a join must be encrypted");
  }
  if (role_ != LinkRole::kJoin && options_.binding.encrypted && !options_.binding.certified) {
    return Refuse(Refusal::kCertificate, "it showed no certificate of the cluster");
  }
  const std::optional<Token> key = options_.find_key(role_, hello.key);
  if (!key) {
    if (role_ == LinkRole::kJoin) return Refuse(Refusal::kJoinToken, "no such join token");
    return Refuse(Refusal::kWrongToken, "it names a token that is not the cluster's");
  }
  key_ = *key;
  key_id_ = hello.key;
  ChallengeBody challenge;
  challenge.version = version_;
  challenge.cluster[0] = options_.cluster.hi;
  challenge.cluster[1] = options_.cluster.lo;
  challenge.nonce = options_.nonce;
  outgoing_ = Message(Type::kChallenge, challenge);
  transcript_ = Transcript(reader_.message(), outgoing_, options_.binding);
  challenged_ = true;
  return {};
}

Status ListenerHandshake::OnProof() {
  const Result<ProofBody> proof = BodyOf<ProofBody>(reader_, Type::kProof);
  if (!proof.ok()) return proof.status();
  const bool right = SameSecret(proof.value().mac, Hmac(key_, {BytesOf(kDialerLabel), transcript_}));
  if (!right) return Refuse(Refusal::kWrongToken, "its proof of the cluster's token is wrong");
  if (options_.on_proven && !options_.on_proven(role_, key_id_)) {
    return Refuse(Refusal::kJoinToken, "its join token has expired or was used");
  }
  outgoing_ =
      Message(Type::kAccepted, ProofBody{Hmac(key_, {BytesOf(kListenerLabel), transcript_, proof.value().mac})});
  Wipe(key_);
  done_ = true;
  return {};
}

Status ListenerHandshake::Refuse(Refusal reason, std::string why) {
  refusal_ = reason;
  RefusedBody body;
  body.reason = static_cast<std::uint8_t>(reason);
  body.version_min = options_.versions.min;
  body.version_max = options_.versions.max;
  body.cluster[0] = options_.cluster.hi;
  body.cluster[1] = options_.cluster.lo;
  outgoing_ = Message(Type::kRefused, body);
  return Status(Code::kInvalid, std::move(why));
}

}  // namespace manta::wire
