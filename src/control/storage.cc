#include "control/storage.h"

namespace manta::control {

std::string AfterPrefix(std::string_view prefix) {
  std::string next(prefix);
  while (!next.empty() && static_cast<unsigned char>(next.back()) == 0xff) next.pop_back();
  if (!next.empty()) next.back() = static_cast<char>(static_cast<unsigned char>(next.back()) + 1);
  return next;
}

}  // namespace manta::control
