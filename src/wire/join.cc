#include "wire/join.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/clock.h"
#include "wire/address.h"
#include "wire/authority.h"
#include "wire/dial.h"

namespace manta::wire {
namespace {

constexpr std::string_view kPrefix = "manta-join-";
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kChecksum = 4;
constexpr std::size_t kFixed = 1 + 32 + 16;  // version, fingerprint, secret
constexpr std::size_t kMaxJoins = 1000;      // open at once

std::string ToBase64(std::string_view bytes) {
  std::string text;
  unsigned bits = 0;
  int have = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (have += 8; have >= 6; have -= 6) text += kAlphabet[bits >> (have - 6) & 63U];
  }
  if (have > 0) text += kAlphabet[bits << (6 - have) & 63U];
  return text;
}

bool FromBase64(std::string_view text, std::string* bytes) {
  unsigned bits = 0;
  int have = 0;
  for (const char c : text) {
    const std::size_t digit = kAlphabet.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<unsigned>(digit);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    *bytes += static_cast<char>(bits >> have & 255U);
  }
  return true;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Checksum(std::string_view bytes) {
  const Digest digest = Hash({BytesOf("manta join checksum"), BytesOf(bytes)});
  return std::string(Text(digest).substr(0, kChecksum));
}

// The file `joins`: a line for each, "<key> <expiry>".
struct OpenJoin {
  Token key{};
  std::int64_t until = 0;
};

std::string JoinsFile(const Secrets& secrets) { return Cat(secrets.folder(), "/joins"); }

Result<std::vector<OpenJoin>> ReadJoins(const Secrets& secrets, std::int64_t now) {
  std::vector<OpenJoin> joins;
  const Result<std::string> text = ReadSecretFile(JoinsFile(secrets));
  if (!text.ok()) {
    if (text.status().code() == Code::kNotFound) return joins;
    return text.status();
  }
  std::string_view rest = text.value();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    OpenJoin join;
    if (line.size() < 66 || line[64] != ' ' || !FromHexText(line.substr(0, 64), join.key)) continue;
    std::from_chars(line.data() + 65, line.data() + line.size(), join.until);
    if (join.until > now) joins.push_back(join);
  }
  return joins;
}

Status WriteJoins(const Secrets& secrets, const std::vector<OpenJoin>& joins) {
  std::string text;
  for (const OpenJoin& join : joins) text += Cat(ToHexText(join.key), " ", join.until, "\n");
  return WriteSecretFile(JoinsFile(secrets), text, false).status();
}

}  // namespace

std::string FormatJoinToken(const JoinToken& token) {
  std::string bytes = "\x01";
  bytes += Text(token.authority);
  bytes += Text(token.secret);
  bytes += token.address;
  bytes += Checksum(bytes);
  return Cat(kPrefix, ToBase64(bytes));
}

Result<JoinToken> ParseJoinToken(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::string bytes;
  if (!text.starts_with(kPrefix) || text.size() > 1024 || !FromBase64(text.substr(kPrefix.size()), &bytes) ||
      bytes.size() <= kFixed + kChecksum) {
    return Status(Code::kInvalid, "not a join token: it begins with `manta-join-` and is printed by the head");
  }
  const std::string_view content = std::string_view(bytes).substr(0, bytes.size() - kChecksum);
  if (Checksum(content) != std::string_view(bytes).substr(content.size())) {
    return Status(Code::kInvalid, "the join token is incomplete or mistyped: copy the whole line");
  }
  if (content[0] != 1) return Status(Code::kInvalid, "the join token is of another version of Manta");
  JoinToken token;
  const std::span<const std::byte> parts = BytesOf(content).subspan(1);
  std::copy_n(parts.begin(), 32, token.authority.begin());
  std::copy_n(parts.begin() + 32, 16, token.secret.begin());
  token.address = content.substr(kFixed);
  const Result<Address> address = ParseAddress(token.address);
  if (!address.ok()) return address.status();
  return token;
}

Token JoinKey(const JoinToken& token) { return Hash({BytesOf("manta join key"), token.secret}); }

Result<std::string> MakeJoinToken(Secrets& secrets, const std::string& address, std::int64_t seconds) {
  JoinToken token;
  const Result<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  token.address = address;
  if (seconds <= 0) return Status(Code::kInvalid, "a join token must be good for at least a second");
  if (!HasAuthority(secrets.folder())) {
    return Status(Code::kInvalid, "only the head, with the cluster's authority, makes join tokens; start it with TLS");
  }
  const Result<Digest> fingerprint = AuthorityFingerprint(secrets.folder());
  if (!fingerprint.ok()) return fingerprint.status();
  token.authority = fingerprint.value();
  FillRandom(token.secret);
  const Result<FolderLock> lock = FolderLock::Take(secrets.folder());
  if (!lock.ok()) return lock.status();
  Result<std::vector<OpenJoin>> joins = ReadJoins(secrets, UnixNow());
  if (!joins.ok()) return joins.status();
  if (joins->size() >= kMaxJoins) {
    return Status(Code::kInvalid, Cat(joins->size(), " join tokens are open already; wait until some expire"));
  }
  joins->push_back({JoinKey(token), UnixNow() + seconds});
  if (Status status = WriteJoins(secrets, *joins); !status.ok()) return status;
  return FormatJoinToken(token);
}

std::optional<Token> FindJoinKey(const Secrets& secrets, const KeyId& id, std::int64_t now) {
  const Result<std::vector<OpenJoin>> joins = ReadJoins(secrets, now);
  if (!joins.ok()) return std::nullopt;
  for (const OpenJoin& join : joins.value()) {
    if (IdOf(join.key) == id) return join.key;
  }
  return std::nullopt;
}

bool TakeJoinKey(const Secrets& secrets, const KeyId& id, std::int64_t now) {
  const Result<FolderLock> lock = FolderLock::Take(secrets.folder());
  if (!lock.ok()) return false;
  Result<std::vector<OpenJoin>> joins = ReadJoins(secrets, now);
  if (!joins.ok()) return false;
  const std::size_t taken = std::erase_if(*joins, [&](const OpenJoin& join) { return IdOf(join.key) == id; });
  return taken > 0 && WriteJoins(secrets, *joins).ok();
}

JoinReply AnswerJoin(Secrets& secrets, const JoinRequest& request, const std::string& seen) {
  std::vector<std::string> hosts = request.hosts;
  if (std::find(hosts.begin(), hosts.end(), seen) == hosts.end()) hosts.push_back(seen);
  JoinReply reply;
  const Result<std::string> certificate = SignRequest(secrets.folder(), request.request, std::move(hosts));
  const Result<std::string> authority = ReadAuthority(secrets.folder());
  if (!certificate.ok() || !authority.ok()) {
    reply.refused = certificate.ok() ? authority.status().message() : certificate.status().message();
    return reply;
  }
  const Keys keys = secrets.keys();
  reply.cluster = keys.cluster;
  reply.token = Text(keys.token);
  reply.authority = authority.value();
  reply.certificate = certificate.value();
  return reply;
}

Status Join(std::string_view join_token, const std::string& folder, const std::vector<std::string>& hosts,
            std::int64_t timeout_us) {
  const std::int64_t deadline = base::NowMicros() + timeout_us;
  const Result<JoinToken> token = ParseJoinToken(join_token);
  if (!token.ok()) return token.status();
  if (Status status = EnsureSecretFolder(folder); !status.ok()) return status;
  const Result<TlsLibrary*> library = LoadTls();
  if (!library.ok()) return library.status();
  // First what can fail here: the token is used up by the first contact.
  Result<KeyPair> own = library.value()->MakeRequest("manta node");
  if (!own.ok()) return own.status();
  const Result<std::shared_ptr<Secrets>> known = Secrets::Open(folder);
  if (!known.ok() && known.status().code() != Code::kNotFound) return known.status();
  if (HasAuthority(folder)) {
    return Status(Code::kInvalid, Cat(folder,
                                      " is the folder of a head, with an authority of its own; name another "
                                      "folder for this node, or remove it"));
  }
  Result<std::unique_ptr<TlsContext>> context = library.value()->Joining(token.value().authority);
  if (!context.ok()) return context.status();

  Keys one_time;
  one_time.token = JoinKey(token.value());
  if (known.ok()) one_time.cluster = known.value()->keys().cluster;  // another one refuses, before the token is used
  DialOptions options;
  options.role = LinkRole::kJoin;
  options.secrets = Secrets::FromKeys(one_time);
  options.context = std::move(*context);
  options.timeout_us = timeout_us;
  Result<Link> link = DialAndWait(token.value().address, options);
  if (!link.ok()) return link.status();
  const auto left = [&] { return std::max<std::int64_t>(deadline - base::NowMicros(), 0); };
  const std::string request = EncodeFrame(JoinRequest{own->certificate, hosts});
  if (Status status = link->stream.WriteAll(BytesOf(request), left()); !status.ok()) return status;
  FrameReader reader;
  Frame frame;
  for (std::size_t total = 0;;) {
    std::array<std::byte, 4096> buffer;
    const Result<std::size_t> got = link->stream.ReadSome(buffer, left());
    if (!got.ok()) return got.status();
    total += got.value();
    if (got.value() == 0 || total > kMaxJoinBytes) return Status(Code::kUnavailable, "the head broke off the join");
    reader.Add(std::span(buffer).first(got.value()), {});
    const Result<bool> whole = reader.Next(&frame);
    if (!whole.ok()) return whole.status();
    if (whole.value()) break;
  }
  const Result<JoinReply> reply = frame.As<JoinReply>();
  if (!reply.ok()) return reply.status();
  if (!reply.value().refused.empty()) return Status(Code::kInvalid, Cat("the head refused: ", reply.value().refused));
  if (reply.value().token.size() != sizeof(Token) || reply.value().cluster.empty()) {
    return Status(Code::kCorrupt, "the head's answer has no token");
  }
  if (known.ok() && known.value()->keys().cluster != reply.value().cluster) {
    return Status(Code::kInvalid, Cat(folder, " belongs to cluster ", ToString(known.value()->keys().cluster),
                                      "; name another folder to join cluster ", ToString(reply.value().cluster)));
  }
  const Result<FolderLock> lock = FolderLock::Take(folder);
  if (!lock.ok()) return lock.status();
  own->certificate = reply.value().certificate;
  Status status = StoreCertificate(folder, *own, reply.value().authority);
  Wipe(std::as_writable_bytes(std::span(own->key)));
  if (!status.ok()) return status;
  // Last: with the token there, the folder is a member's.
  Keys keys;
  keys.cluster = reply.value().cluster;
  std::copy_n(BytesOf(reply.value().token).begin(), sizeof(Token), keys.token.begin());
  std::string text = FormatKeys(keys);
  status = WriteSecretFile(Cat(folder, "/", kTokenFile), text, false).status();
  Wipe(std::as_writable_bytes(std::span(text)));
  return status;
}

}  // namespace manta::wire
