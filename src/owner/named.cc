#include "owner/named.h"

namespace manta::owner {

NamedCode& NamedCode::Get() {
  static auto* named = new NamedCode();
  return *named;
}

void NamedCode::Add(const char* name, internal::Trampoline trampoline, std::uint64_t target) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char* c = name; *c != '\0'; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001b3ULL;
  const std::lock_guard lock(mutex_);
  by_code_[Key(trampoline, target)] = hash;
  by_hash_[hash] = Code{name, trampoline, target};
}

}  // namespace manta::owner
