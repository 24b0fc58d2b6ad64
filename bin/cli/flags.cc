#include "cli/flags.h"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace manta::cli {

void AddWord(const char* flag, const std::string& value, std::vector<std::string>* words) {
  if (!value.empty()) words->insert(words->end(), {flag, value});
}

CLI::Validator IsBytes() {
  const auto read = [](std::string& text) -> std::string {
    static constexpr std::string_view kUnits = "KMGT";
    const char* const end = text.data() + text.size();
    std::uint64_t amount = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, amount);
    const std::string_view unit(stop, end);
    const std::size_t which = unit.empty() ? 0 : kUnits.find(unit[0]);
    const bool known = unit.empty() || (which < kUnits.size() && (unit.size() == 1 || unit.substr(1) == "B"));
    const std::size_t bits = unit.empty() || !known ? 0 : 10 * (which + 1);
    if (error != std::errc() || !known || amount > (~0ULL >> 1 >> bits)) {
      return Cat("'", text, "' is no number of bytes: give digits, and K, M, G or T behind them for more (512M)");
    }
    text = std::to_string(amount << bits);
    return {};
  };
  return {read, "BYTES"};
}

void HeadFlags::AddTo(CLI::App& command) {
  command.add_option("--job-quota", job_quota,
                     "NAME=AMOUNT that a job may have at a time, on all nodes together (CPU=8); repeat for more");
  command.add_option("--schedulers", schedulers, "global schedulers, with the head's own")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

void HeadFlags::Tell(node::HeadOptions* head) const {
  head->schedulers = schedulers;
  for (const std::string& one : job_quota) AddWord("--job-quota", one, &head->words);
}

void NodeFlags::AddTo(CLI::App& command) {
  command.add_option(
      "--resource", resources,
      "NAME=AMOUNT of something else to share out (memory, in MiB, is 70% of the machine's if not said); "
      "repeat for more");
  command.add_option("--store-bytes", store_bytes, "memory for large objects of a node (2G)")->transform(IsBytes());
  command.add_option("--spill", spill,
                     "folder for objects and lineage that find no room in memory, or 'none' (default $TMPDIR or /tmp)");
  command.add_option("--spill-limit", spill_limit, "bytes of objects and lineage to have there at most, of a node")
      ->transform(IsBytes());
  command
      .add_option("--lineage-memory", lineage_memory,
                  "bytes that a process keeps at most to rebuild lost values from (default 256 MB)")
      ->transform(IsBytes());
  command.add_option("--state", state, "folder for the lineage of jobs that have a name (default: that of --secrets)");
}

std::vector<std::string> NodeFlags::Words() const {
  std::vector<std::string> words;
  AddWord("--spill", spill, &words);
  AddWord("--spill-limit", spill_limit, &words);
  AddWord("--lineage-memory", lineage_memory, &words);
  AddWord("--state", state, &words);
  for (const std::string& one : resources) AddWord("--resource", one, &words);
  return words;
}

}  // namespace manta::cli
