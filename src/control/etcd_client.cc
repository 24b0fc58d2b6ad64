#include "control/etcd_client.h"

#include <optional>
#include <utility>

namespace manta::control {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kScheme = "http://";

}  // namespace

std::string ToBase64(std::string_view bytes) {
  std::string text;
  unsigned bits = 0;
  int have = 0;
  for (const char byte : bytes) {
    bits = bits << 8U | static_cast<unsigned char>(byte);
    for (have += 8; have >= 6; have -= 6) text += kDigits[bits >> static_cast<unsigned>(have - 6) & 63U];
  }
  if (have > 0) text += kDigits[bits << static_cast<unsigned>(6 - have) & 63U];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

Result<std::string> FromBase64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  unsigned bits = 0;
  int have = 0;
  for (const char digit : text) {
    const std::size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) return Status(Code::kCorrupt, "etcd gave a value that is not base64");
    bits = bits << 6U | static_cast<unsigned>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes += static_cast<char>(bits >> static_cast<unsigned>(have) & 255U);
  }
  return bytes;
}

Result<std::unique_ptr<EtcdClient>> EtcdClient::Create(base::Loop& loop, const std::vector<std::string>& servers) {
  std::unique_ptr<EtcdClient> client(new EtcdClient(loop));
  for (std::string name : servers) {
    if (name.starts_with("https://")) {
      return Status(Code::kInvalid, Cat("etcd at ", name,
                                        ": TLS to etcd is not supported; let it listen at loopback "
                                        "or a network that you trust, and give http:// or host:port"));
    }
    if (name.starts_with(kScheme)) name.erase(0, kScheme.size());
    const Result<wire::Address> address = wire::ParseAddress(name, 2379);
    if (!address.ok()) return address.status();
    const Result<std::vector<wire::SocketAddress>> found = wire::Resolve(address.value());
    if (!found.ok()) return found.status();
    for (const wire::SocketAddress& one : found.value()) client->servers_.push_back({name, one});
  }
  if (client->servers_.empty()) return Status(Code::kInvalid, "no etcd server was named");
  return client;
}

void EtcdClient::Ask(const std::string& what, const std::string& body, OnAnswer done) {
  Try(next_++, what, body, 0, std::move(done));
}

void EtcdClient::Try(std::uint64_t number, const std::string& what, const std::string& body, std::size_t tried,
                     OnAnswer done) {
  const std::size_t at = (best_ + tried) % servers_.size();
  const auto answered = [this, number, what, body, tried, at, done = std::move(done)](Result<HttpReply> reply) {
    const std::unique_ptr<HttpCall> ended = std::move(calls_[number]);
    calls_.erase(number);
    // 503: this one has no leader; another may have.
    if (!reply.ok() || reply->status() == 503) {
      if (tried + 1 < servers_.size()) return Try(number, what, body, tried + 1, done);
      best_ = (at + 1) % servers_.size();
      return done(
          Status(Code::kUnavailable, Cat("etcd does not answer: ", reply.ok() ? "503" : reply.status().message())));
    }
    best_ = at;
    Result<Json> answer = Json::Parse(reply->body());
    if (reply->status() != 200) {
      const std::string why = answer.ok() ? (*answer)["error"].text : reply->body().substr(0, 200);
      return done(Status(Code::kIo, Cat("etcd at ", servers_[at].name, " refuses ", what, ": ", why)));
    }
    done(std::move(answer));
  };
  calls_[number] = std::make_unique<HttpCall>(loop_, servers_[at].address, servers_[at].name, "/v3/" + what, body,
                                              kTimeoutUs, answered);
}

Result<Json> EtcdClient::AskAndWait(const std::string& what, const std::string& body) {
  std::optional<Result<Json>> answer;
  Ask(what, body, [&answer](Result<Json> result) { answer = std::move(result); });
  while (!answer) loop_.RunOnce(100'000);
  return std::move(*answer);
}

}  // namespace manta::control
