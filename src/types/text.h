// Small helpers to put numbers into messages.
#pragma once

#include <sstream>
#include <string>

namespace manta {

// Cat("a", 1, 'c') == "a1c".
template <typename... Parts>
[[nodiscard]] std::string Cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// 1536 -> "1.5 KiB".
[[nodiscard]] std::string Bytes(unsigned long long count);

}  // namespace manta
