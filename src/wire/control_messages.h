// Every message between a process and the control store (bin/manta-control), over one stream each. Plain structs in the
// codec and the frames of all other messages (wire/messages.h); their kinds are numbers from 200 up.
//
// "->" marks who sends: P any process of the cluster, C control. A message with a `call` number in its frame gets one
// answer with the same number: the struct named in its comment, or Failed.
//
// Order: requests of one connection about one key take effect in the order sent; about different keys, in any order.
// A value that was seen, and a write that was answered, is durable.
//
// Exactly once: a write carries (client, sequence). The client draws its id once, numbers its writes upward from 1, has
// at most kControlWindow of them unanswered, and after a lost connection sends those again under the same numbers. A
// write that was applied before answers as it did then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "types/failure.h"
#include "types/id.h"
#include "wire/messages.h"

namespace manta::wire {

inline constexpr std::uint32_t kControlVersion = 1;
// Writes of one client that may be unanswered at a time; also how many of its last ones the store remembers.
inline constexpr std::uint64_t kControlWindow = 1024;
inline constexpr std::size_t kMaxControlKey = 1024;         // bytes
inline constexpr std::size_t kMaxControlValue = 32U << 20;  // bytes

enum class ControlKind : std::uint16_t {
  kHello = 200,
  kWelcome,
  kGet,
  kValue,
  kWrite,
  kWritten,
  kScan,
  kEntries,
  kWatch,
  kChanges,
  kUnwatch,
  kWatchEnded,
};

// The numbers are on disk: only append.
enum class Table : std::uint8_t {
  kMeta = 0,  // of the store itself; not for clients
  kNodes = 1,
  kJobs = 2,
  kPackages = 3,  // functions and the binaries they are in
  kActors = 4,
  kObjects = 5,
  kLineage = 6,
  kGroups = 7,  // placement groups
  kKeyValue = 8,
  kEvents = 9,
};
inline constexpr std::uint8_t kTables = 10;
[[nodiscard]] inline const char* NameOf(Table table) {
  constexpr const char* kNames[kTables] = {
      "meta", "nodes", "jobs", "packages", "actors", "objects", "lineage", "placement_groups", "key_value", "events"};
  return static_cast<std::uint8_t>(table) < kTables ? kNames[static_cast<std::uint8_t>(table)] : "unknown";
}

// P -> C, first message, a call answered by ControlWelcome.
struct ControlHello {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kHello);
  std::uint32_t version = kControlVersion;
  Id client;
};
struct ControlWelcome {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kWelcome);
  std::uint64_t epoch = 0;  // higher with every start of the control process
  std::uint32_t shards = 0;
};

// P -> C, a call answered by ControlValue.
struct ControlGet {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kGet);
  Table table = Table::kKeyValue;
  std::string key;
};
// version 0: there is no such key. Else a number that grows with every write of the key, also across a delete.
struct ControlValue {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kValue);
  std::uint64_t version = 0;
  std::string value;
};

// P -> C, a call answered by ControlWritten. No value: delete.
struct ControlWrite {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kWrite);
  Id client;
  std::uint64_t sequence = 0;
  Table table = Table::kKeyValue;
  std::string key;
  std::optional<std::string> value;
  std::optional<std::uint64_t> expect;  // only if the key has this version; 0: only if there is no such key
};
// Not applied: another version than the expected one was there, namely `version`.
struct ControlWritten {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kWritten);
  bool applied = false;
  std::uint64_t version = 0;  // of the key now; 0: none (after a delete, too)
};

// P -> C, a call answered by ControlEntries: keys that start with `prefix` and come after `after`, in order.
struct ControlScan {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kScan);
  Table table = Table::kKeyValue;
  std::string prefix;
  std::string after;        // the last key of the page before; empty: from the start
  std::uint32_t limit = 0;  // entries at most; 0: as the server likes
};
struct ControlEntry {
  std::string key;
  std::uint64_t version = 0;
  std::string value;
};
struct ControlEntries {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kEntries);
  std::vector<ControlEntry> entries;
  bool more = false;  // after the last of these
};

// P -> C, one-way. `watch` is drawn by the client, unique within the connection. ControlChanges follow: first what is
// there now, ending with one that says `complete`; then every change, of one key in the order they were made. What the
// first part showed is not told again.
struct ControlWatch {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kWatch);
  std::uint64_t watch = 0;
  Table table = Table::kKeyValue;
  std::string prefix;
};
struct ControlChange {
  std::string key;
  std::uint64_t version = 0;  // of the write or the delete
  std::optional<std::string> value;
};
// C -> P: of one watch.
struct ControlChanges {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kChanges);
  std::uint64_t watch = 0;
  bool complete = false;  // all that was there at the start has now been told
  std::vector<ControlChange> changes;
};
// P -> C, one-way. Changes already on their way may still arrive.
struct ControlUnwatch {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kUnwatch);
  std::uint64_t watch = 0;
};
// C -> P: the watch is over; kUnavailable with the numbers when its reader was too slow.
struct ControlWatchEnded {
  static constexpr Kind kKind = static_cast<Kind>(ControlKind::kWatchEnded);
  std::uint64_t watch = 0;
  Failure failure;
};

}  // namespace manta::wire
