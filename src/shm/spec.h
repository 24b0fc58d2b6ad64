// A spec is one call as it stands in its owner's log: what to run, for whom, with which arguments.
// Written once by the owner, read by the worker that claims it, and kept as lineage for as long as
// somebody may need the result. All fields are plain so that a worker can read a spec in place;
// SpecReader checks every length, because the bytes come from another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "types/id.h"
#include "types/place.h"
#include "types/status.h"

namespace manta::shm {

struct SpecHeader {
  static constexpr std::uint16_t kNamed = 1;       // a name follows the header
  static constexpr std::uint16_t kTimed = 2;       // the worker notes when it started
  static constexpr std::uint16_t kStableName = 4;  // `target` is the hash of a MANTA_REMOTE name
  static constexpr std::uint16_t kVirtual = 8;     // `target` is a virtual method's index, not an offset
  static constexpr std::uint16_t kWhole = 16;      // a vector is one return value
  static constexpr std::uint16_t kNoTarget = 32;   // the trampoline knows what to call
  static constexpr std::uint16_t kOnce = 64;       // never to be run twice: a far worker says when it begins
  // Of an actor's call, or of what a task does to actors (rules/actor_replay.h).
  static constexpr std::uint16_t kReadOnly = 128;  // it does not change the actor
  static constexpr std::uint16_t kRerun = 256;     // it may have been made before, also whatever it calls
  static constexpr std::uint16_t kFresh = 512;     // it ran, and is to run again, as is whatever it calls
  static constexpr std::uint16_t kBegun = 1024;    // the actor died in it
  static constexpr std::uint16_t kLoose = 2048;  // arguments name places or processes: `digest` is not always the same

  std::uint32_t bytes = 0;  // of the whole record; a multiple of 8
  std::uint16_t flags = 0;
  std::uint16_t name_bytes = 0;  // rounded up to 8 in the record
  Id id;
  std::uint32_t entry = 0;       // the owner's future for return 0 …
  std::uint32_t generation = 0;  // … and which use of that place
  std::uint32_t returns = 1;
  std::uint32_t module = 0;      // hash of the module that holds the code
  std::uint32_t trampoline = 0;  // offsets in that module
  std::uint32_t target_module = 0;
  std::uint64_t target = 0;
  std::uint32_t adjust = 0;
  std::uint32_t match = 0;   // RetryOn: offset of a function that judges an exception; 0: none
  std::uint64_t digest = 0;  // of code and arguments: the same id must always come with the same digest
};
static_assert(sizeof(SpecHeader) == 72);

// Arguments are items: a word {kind, length} and that many bytes, padded to 8.
enum class ItemKind : std::uint8_t {
  kValue = 1,   // encoded bytes
  kStored = 2,  // a StoredItem
  kList = 3,    // `length` items follow that are one argument
};
struct StoredItem {
  Id object;
  Place place;
  ProcessId owner = kNoProcess;
};

[[nodiscard]] constexpr std::uint64_t ItemWord(ItemKind kind, std::uint64_t length) {
  return (static_cast<std::uint64_t>(kind) << 56) | length;
}
[[nodiscard]] constexpr std::uint64_t ItemLength(std::uint64_t word) { return word & ((1ULL << 56) - 1); }
[[nodiscard]] constexpr std::uint64_t Padded(std::uint64_t bytes) { return (bytes + 7) & ~7ULL; }

class SpecReader {
 public:
  // `available` is how many bytes may be looked at. Copies the header, then reads items in place.
  static Result<SpecReader> Open(const std::byte* at, std::uint64_t available) {
    if (available < sizeof(SpecHeader)) return Status(Code::kCorrupt, "a task's spec is cut off");
    SpecReader reader;
    std::memcpy(&reader.header_, at, sizeof(SpecHeader));
    const SpecHeader& h = reader.header_;
    if (h.bytes > available || (h.bytes & 7) != 0 || h.bytes < sizeof h + Padded(h.name_bytes)) {
      return Status(Code::kCorrupt, "a task's spec has a wrong length");
    }
    reader.name_ = std::string_view(reinterpret_cast<const char*>(at) + sizeof h, h.name_bytes);
    reader.next_ = at + sizeof h + Padded(h.name_bytes);
    reader.end_ = at + h.bytes;
    return reader;
  }

  struct Item {
    ItemKind kind = ItemKind::kValue;
    std::uint64_t length = 0;
    const std::byte* data = nullptr;
  };
  Result<Item> Next() {
    Result<Item> item = Peek();
    if (item.ok()) next_ += 8 + (item->kind == ItemKind::kList ? 0 : Padded(item->length));
    return item;
  }
  Result<Item> Peek() const {
    if (end_ - next_ < 8) return Status(Code::kCorrupt, "a task's spec has too few arguments");
    std::uint64_t word = 0;
    std::memcpy(&word, next_, 8);
    Item item;
    item.kind = static_cast<ItemKind>(word >> 56);
    item.length = ItemLength(word);
    item.data = next_ + 8;
    const auto rest = static_cast<std::uint64_t>(end_ - next_ - 8);
    const bool known = item.kind == ItemKind::kValue || item.kind == ItemKind::kList ||
                       (item.kind == ItemKind::kStored && item.length == sizeof(StoredItem));
    if (!known ||
        (item.kind == ItemKind::kList ? item.length > rest / 8 : item.length > rest || Padded(item.length) > rest)) {
      return Status(Code::kCorrupt, "a task's spec has an impossible argument");
    }
    return item;
  }

  [[nodiscard]] const SpecHeader& header() const { return header_; }
  [[nodiscard]] std::string_view name() const { return name_; }

 private:
  SpecHeader header_;
  std::string_view name_;
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
};

}  // namespace manta::shm
