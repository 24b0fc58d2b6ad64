// Files and lines of addresses, from the line tables (.debug_line, DWARF 4 and 5) that -g leaves in a program.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace manta::worker {

struct Place {
  std::string_view file;  // "parse.cc", without folders; valid while the sections stay mapped
  unsigned line = 0;      // 0: unknown
};

// The sections of one file; those that are missing are empty.
struct LineSections {
  std::span<const char> lines;         // .debug_line
  std::span<const char> line_strings;  // .debug_line_str
  std::span<const char> strings;       // .debug_str
};

// The place of the code at `address`, as the file counts addresses. Reads every table up to the one that has it.
// Allocates nothing and trusts no length: fit for a signal handler, and for a damaged file.
[[nodiscard]] Place FindLine(const LineSections& sections, std::uint64_t address);

}  // namespace manta::worker
