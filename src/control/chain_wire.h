// What goes over the links of a chain (rules/chain.h): between the process that serves clients (the front) and members,
// and from member to member. Plain structs in the frames of all other messages; their kinds are numbers from 280 up.
// The first message of each link is a ChainHello.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "control/storage.h"
#include "manta/codec.h"
#include "rules/chain.h"
#include "wire/frame.h"

namespace manta::control {

inline constexpr std::uint32_t kChainVersion = 1;

// Front to member, member to member. A member serves one chain in its life: another one's hello is refused.
struct ChainHello {
  static constexpr wire::Kind kKind = static_cast<wire::Kind>(280);
  std::uint32_t version = kChainVersion;
  Id chain;
  rules::MemberId from = rules::kNoMember;  // none: the front
  rules::MemberId to = rules::kNoMember;
  std::uint64_t opening = 0;           // of the front: a later one takes over from an earlier one
  std::uint64_t incarnation = 0;       // by the front: the member's number for its life, if it has none yet
  bool counted_on = false;             // by the front: this member has to have what was acknowledged
  std::vector<std::string> addresses;  // of members 1, 2, …
};
struct ChainPacket {
  static constexpr wire::Kind kKind = static_cast<wire::Kind>(281);
  rules::ChainMessage message;
};
// Front to all members: this client will not ask again. A hint; who misses it remembers for longer.
struct ChainForget {
  static constexpr wire::Kind kKind = static_cast<wire::Kind>(282);
  Id client;
};

// ---- what records and reads carry ----

struct ChainGetRequest {
  Table table = Table::kMeta;
  std::string key;
};
struct ChainScanRequest {
  Table table = Table::kMeta;
  std::string prefix;
  std::string after;
  std::uint64_t limit = 0;
};
struct ChainStampsRequest {};
using ChainRequest = std::variant<ChainGetRequest, ChainScanRequest, ChainStampsRequest>;

struct ChainStamp {
  Id client;
  std::uint64_t client_sequence = 0;
  std::uint64_t position = 0;
};
struct ChainStamps {
  std::vector<ChainStamp> stamps;
  std::uint64_t last = 0;  // position of the last record
};
struct ChainFailure {
  std::int32_t code = 0;
  std::string message;
};
using ChainAnswer = std::variant<ChainFailure, std::optional<Entry>, Page, ChainStamps>;

template <typename T>
[[nodiscard]] std::string ToBytes(const T& value) {
  std::string bytes(EncodedSize(value), '\0');
  Encode(value, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}
template <typename T>
[[nodiscard]] Result<T> FromBytes(const std::string& bytes) {
  try {
    return Decode<T>(std::as_bytes(std::span(bytes)));
  } catch (const Error& error) {
    return Status(Code::kCorrupt, Cat("bytes from a chain member do not decode: ", error.what()));
  }
}

}  // namespace manta::control
