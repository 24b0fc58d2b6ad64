#include "base/failpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace manta::base {
namespace {

struct Rule {
  std::string name;
  int signal = SIGKILL;
  std::uint64_t at = 1;  // which time
  std::atomic<std::uint64_t> hits{0};
};

constexpr std::size_t kMostRules = 8;

struct Rules {
  std::array<Rule, kMostRules> all;
  std::size_t count = 0;
  std::string folder;
};

Rules& TheRules() {
  static Rules* rules = new Rules;  // never freed: threads may still come by at exit
  return *rules;
}

// "name=kill@3". False: it makes no sense.
bool Parse(std::string_view text, Rule* rule) {
  const std::size_t equals = text.find('=');
  const std::size_t at = text.find('@');
  if (equals == std::string_view::npos || equals == 0) return false;
  const std::string_view action = text.substr(equals + 1, at == std::string_view::npos ? at : at - equals - 1);
  if (action != "kill" && action != "stop") return false;
  rule->name = text.substr(0, equals);
  rule->signal = action == "kill" ? SIGKILL : SIGSTOP;
  rule->at = 1;
  rule->hits = 0;
  if (at == std::string_view::npos) return true;
  const std::string_view number = text.substr(at + 1);
  return std::from_chars(number.data(), number.data() + number.size(), rule->at).ec == std::errc();
}

[[maybe_unused]] const bool g_read = [] {
  SetFailpoints(std::getenv("MANTA_FAILPOINTS"), std::getenv("MANTA_FAILPOINTS_ONCE"));
  return true;
}();

}  // namespace

namespace internal {

constinit std::atomic<bool> failpoints_set{false};

void HitFailpoint(const char* name) {
  Rules& rules = TheRules();
  for (std::size_t i = 0; i < rules.count; ++i) {
    Rule& rule = rules.all[i];
    if (rule.name != name || rule.hits.fetch_add(1) + 1 != rule.at) continue;
    if (!rules.folder.empty()) {
      const int file = open((rules.folder + "/" + name).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
      if (file < 0) continue;  // another process was here before
      close(file);
    }
    kill(getpid(), rule.signal);
  }
}

}  // namespace internal

void SetFailpoints(const char* text, const char* once_folder) {
  internal::failpoints_set.store(false);
  Rules& rules = TheRules();
  rules.count = 0;
  rules.folder = once_folder == nullptr ? "" : once_folder;
  std::string_view rest(text == nullptr ? "" : text);
  while (!rest.empty() && rules.count < kMostRules) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    if (Parse(rest.substr(0, end), &rules.all[rules.count])) ++rules.count;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  internal::failpoints_set.store(rules.count > 0);
}

}  // namespace manta::base
