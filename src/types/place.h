// Place says where in a node's store an object's bytes are: a row of a segment's allocation table.
// The generation tells a reused row from its former object, so a stale Place never reads other bytes.
#pragma once

#include <cstdint>

namespace manta {

struct Place {
  std::uint32_t segment = 0;  // 0: nowhere
  std::uint32_t row = 0;
  std::uint32_t generation = 0;
  std::uint32_t node = 0;  // whose store it is (NodeNumber)
  std::uint64_t size = 0;

  [[nodiscard]] bool nowhere() const { return segment == 0; }
  friend bool operator==(const Place&, const Place&) = default;
};

}  // namespace manta
