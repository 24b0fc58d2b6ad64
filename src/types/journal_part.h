// Ranges of an actor's journal (shm/journal.h), for copies on other machines.
#pragma once

#include <cstdint>
#include <string>

namespace manta {

// Where it is.
struct JournalRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The bytes of a journal at an offset.
struct JournalPart {
  std::uint64_t offset = 0;
  std::string bytes;
};

}  // namespace manta
