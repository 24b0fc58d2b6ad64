// Names of things that more than one process speaks about.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace manta {

// 128 bits that name a task, an object or an actor for good. Ids are derived, never drawn: the
// same parent making the same call again makes the same id, which is what recovery relies on.
struct Id {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;

  friend auto operator<=>(const Id&, const Id&) = default;
  [[nodiscard]] bool empty() const { return hi == 0 && lo == 0; }
};

// One round of a strong 64-bit mixer (the finaliser of SplitMix64).
[[nodiscard]] constexpr std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The id of the `index`-th call made along `path` (a submitting thread) inside `parent`.
[[nodiscard]] constexpr Id DeriveId(const Id& parent, std::uint64_t path, std::uint64_t index) {
  const std::uint64_t a = Mix(parent.hi ^ (path * 0x9e3779b97f4a7c15ULL) ^ 0x6d616e7461ULL);
  const std::uint64_t b = Mix(parent.lo + index * 0xd1342543de82ef95ULL + a);
  return Id{Mix(a ^ b), b | 1};  // never empty
}

// Who makes a call, and which of its calls it is: that is its id.
struct CallOrigin {
  Id parent;                // the running task, or the job
  std::uint64_t path = 0;   // which thread of it
  std::uint64_t index = 0;  // of the calls made there

  [[nodiscard]] Id id() const { return DeriveId(parent, path, index); }
};

// The id of the `index`-th value a task returns. Return 0 has the task's own id.
[[nodiscard]] constexpr Id ReturnId(const Id& task, std::uint32_t index) {
  if (index == 0) return task;
  return Id{task.hi + index, Mix(task.lo ^ index) | 1};
}

[[nodiscard]] std::string ToString(const Id& id);  // 8 hex digits: enough to tell apart in a log
[[nodiscard]] std::string ToHex(const Id& id);     // all 32
[[nodiscard]] bool FromHex(const std::string& text, Id* id);

// A process of the cluster, unique for the cluster's life: its node's number (NodeOf), and below that what is
// unique for the life of the node's daemon (LocalOf). Of that the low bits are its place in the node area
// (doorbells); the high ones tell a reused place from its former user.
using ProcessId = std::uint64_t;
inline constexpr std::uint32_t kProcessSlotBits = 12;
inline constexpr std::uint32_t kMaxProcesses = 1U << kProcessSlotBits;  // of one node
[[nodiscard]] constexpr std::uint32_t SlotOf(ProcessId id) {
  return static_cast<std::uint32_t>(id & (kMaxProcesses - 1));
}
[[nodiscard]] constexpr std::uint32_t LocalOf(ProcessId id) { return static_cast<std::uint32_t>(id); }
inline constexpr ProcessId kNoProcess = 0;  // slot 0 is the daemon itself

// A node of the cluster: drawn by control, never used again. 0: the only node of a private cluster.
using NodeNumber = std::uint32_t;
[[nodiscard]] constexpr NodeNumber NodeOf(ProcessId id) { return static_cast<NodeNumber>(id >> 32); }
[[nodiscard]] constexpr ProcessId OnNode(NodeNumber node, std::uint32_t local) {
  return (static_cast<ProcessId>(node) << 32) | local;
}

}  // namespace manta

template <>
struct std::hash<manta::Id> {
  std::size_t operator()(const manta::Id& id) const noexcept { return id.lo ^ (id.hi * 0x9e3779b97f4a7c15ULL); }
};
