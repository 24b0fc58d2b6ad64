// Resources counts what a task needs or a node has: CPUs, GPUs and anything the user names, in
// ten-thousandths, so that sums of fractions are exact.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "manta/fields.h"

namespace manta {

inline constexpr std::int64_t kUnit = 10000;  // one CPU

class Resources {
 public:
  Resources() = default;

  // Amounts are in units of kUnit; zero removes the entry.
  void Set(const std::string& name, std::int64_t amount);
  [[nodiscard]] std::int64_t Get(const std::string& name) const;

  [[nodiscard]] bool Covers(const Resources& need) const;
  void Add(const Resources& other);
  void Subtract(const Resources& other);  // may go below zero; the caller checks Covers first
  [[nodiscard]] bool empty() const { return amounts_.empty(); }
  [[nodiscard]] const std::map<std::string, std::int64_t>& amounts() const& { return amounts_; }
  [[nodiscard]] std::map<std::string, std::int64_t> amounts() && {
    return std::move(amounts_);
  }  // for (… : F().amounts())

  friend bool operator==(const Resources&, const Resources&) = default;
  friend auto operator<=>(const Resources&, const Resources&) = default;

  MANTA_FIELDS(amounts_)

 private:
  std::map<std::string, std::int64_t> amounts_;
};

[[nodiscard]] std::string ToString(const Resources& resources);  // "CPU 1, GPU 0.5"

}  // namespace manta
