// A range of an actor's journal (shm/journal.h), for copies on other machines.
#pragma once

#include <cstdint>
#include <string>

namespace manta {

struct JournalPart {
  std::uint64_t offset = 0;
  std::string bytes;
};

}  // namespace manta
