#include "types/resources.h"

#include <cstdio>

namespace manta {

void Resources::Set(const std::string& name, std::int64_t amount) {
  if (amount == 0) {
    amounts_.erase(name);
  } else {
    amounts_[name] = amount;
  }
}

std::int64_t Resources::Get(const std::string& name) const {
  const auto it = amounts_.find(name);
  return it == amounts_.end() ? 0 : it->second;
}

bool Resources::Covers(const Resources& need) const {
  for (const auto& [name, amount] : need.amounts_) {
    if (amount > Get(name)) return false;
  }
  return true;
}

void Resources::Add(const Resources& other) {
  for (const auto& [name, amount] : other.amounts_) Set(name, Get(name) + amount);
}

void Resources::Subtract(const Resources& other) {
  for (const auto& [name, amount] : other.amounts_) Set(name, Get(name) - amount);
}

std::string ToString(const Resources& resources) {
  if (resources.empty()) return "nothing";
  std::string out;
  for (const auto& [name, amount] : resources.amounts()) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(amount) / kUnit);
    if (!out.empty()) out += ", ";
    out += name + " " + text;
  }
  return out;
}

}  // namespace manta
