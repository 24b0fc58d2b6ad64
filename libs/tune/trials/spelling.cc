#include "tune/trials/spelling.h"

#include <algorithm>
#include <cstddef>

namespace manta::tune::trials {
namespace {

// Edits that turn one name into the other.
std::size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Join(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMost) text += ", …";
  return text;
}

std::string Suggest(const std::string& wrong, const std::vector<std::string>& names) {
  const std::string* nearest = nullptr;
  std::size_t best = std::max<std::size_t>(2, wrong.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = Distance(wrong, name);
    if (distance < best) {
      best = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? std::string() : " Did you mean " + *nearest + "?";
}

}  // namespace manta::tune::trials
