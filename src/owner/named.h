// NamedCode is the process's list of functions with a stable name (MANTA_REMOTE). Filled by statics
// before main, then only read.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "manta/internal/core.h"

namespace manta::owner {

class NamedCode {
 public:
  struct Code {
    std::string name;
    internal::Trampoline trampoline = nullptr;
    std::uint64_t target = 0;
  };
  static NamedCode& Get();

  void Add(const char* name, internal::Trampoline trampoline, std::uint64_t target);
  // 0: it has no name.
  [[nodiscard]] std::uint64_t HashOf(internal::Trampoline trampoline, std::uint64_t target) const {
    if (by_code_.empty()) return 0;
    const auto it = by_code_.find(Key(trampoline, target));
    return it == by_code_.end() ? 0 : it->second;
  }
  // nullptr: no such name in this program.
  [[nodiscard]] const Code* Find(std::uint64_t hash) const {
    const auto it = by_hash_.find(hash);
    return it == by_hash_.end() ? nullptr : &it->second;
  }

 private:
  static std::uint64_t Key(internal::Trampoline trampoline, std::uint64_t target) {
    return reinterpret_cast<std::uint64_t>(trampoline) * 31 + target;
  }
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> by_code_;
  std::unordered_map<std::uint64_t, Code> by_hash_;
};

}  // namespace manta::owner
