#include "types/id.h"

#include <cstdio>

namespace manta {

std::string ToHex(const Id& id) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(id.hi),
                static_cast<unsigned long long>(id.lo));
  return text;
}

std::string ToString(const Id& id) { return ToHex(id).substr(0, 8); }

bool FromHex(const std::string& text, Id* id) {
  if (text.size() != 32) return false;
  std::uint64_t parts[2] = {0, 0};
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (digit < 0) return false;
    parts[i / 16] = parts[i / 16] * 16 + static_cast<std::uint64_t>(digit);
  }
  *id = Id{parts[0], parts[1]};
  return true;
}

}  // namespace manta
