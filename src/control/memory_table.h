// MemoryTable: what was written since the last checkpoint, ordered by table and key; the newest value of each only.
//
// Threads: filled by the loop; once frozen (shared as const) read by the loop and the thread that checkpoints it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "control/storage.h"

namespace manta::control {

struct Cell {
  std::uint64_t version = 0;
  std::optional<std::string> value;  // none: deleted
};

// Which batch applied a client's write; at most one for each (client, client_sequence % kControlWindow).
struct Stamp {
  std::uint64_t client_sequence = 0;
  std::uint64_t sequence = 0;
};

struct MemoryTable {
  using Key = std::pair<Table, std::string>;
  using KeyView = std::pair<Table, std::string_view>;
  struct Less {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.first != b.first ? a.first < b.first : std::string_view(a.second) < std::string_view(b.second);
    }
  };

  std::map<Key, Cell, Less> cells;
  std::map<std::pair<Id, std::uint32_t>, Stamp> stamps;
  std::set<Id> forgotten;  // clients; before the stamps are put in
  std::uint64_t sequence = 0;
  std::size_t bytes = 0;

  void Put(Batch&& batch, std::size_t batch_bytes) {
    for (Write& write : batch.writes) {
      Cell& cell = cells[Key(write.table, std::move(write.key))];
      cell.version = batch.sequence;
      cell.value = std::move(write.value);
    }
    if (!batch.client.empty()) {
      const auto slot = static_cast<std::uint32_t>(batch.client_sequence % wire::kControlWindow);
      stamps[{batch.client, slot}] = Stamp{batch.client_sequence, batch.sequence};
    }
    sequence = batch.sequence;
    bytes += batch_bytes;
  }
};

}  // namespace manta::control
