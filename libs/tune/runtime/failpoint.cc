#include "tune/runtime/failpoint.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace manta::tune::runtime {

void Failpoint(const char* name) {
  static const std::string kAsked = [] {
    const char* text = std::getenv("MANTA_TUNE_FAILPOINT");  // NOLINT(concurrency-mt-unsafe): read once
    return std::string(text == nullptr ? "" : text);
  }();
  if (kAsked.empty()) return;
  static int left = [] {
    const std::size_t at = kAsked.find('@');
    return at == std::string::npos ? 1 : std::atoi(kAsked.c_str() + at + 1);
  }();
  if (kAsked.substr(0, kAsked.find('@')) == name && --left == 0) (void)kill(getpid(), SIGKILL);
}

}  // namespace manta::tune::runtime
