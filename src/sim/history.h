// What clients asked of a store of registers and what they were told, and whether one order of all of it explains it.
//
// An operation is invoked, and is then ok (took effect between the two, with this answer), failed (had no effect) or
// stays unknown (may take effect at any time after it was invoked, or never). CheckLinearizable looks for an order of
// the operations on each key that keeps real time (what ended before another began comes first) and gives the answers
// that were given. It is the search of Wing and Gong, which takes back its last choice when it is stuck, with a memory
// of the (set of operations, value) pairs it was stuck with, so that none is tried twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace manta::sim {

struct Operation {
  enum class Kind : std::uint8_t { kRead, kWrite, kCompareAndSet };
  enum class Outcome : std::uint8_t { kUnknown, kOk, kFailed };

  std::uint32_t client = 0;
  std::uint32_t key = 0;
  Kind kind = Kind::kRead;
  Outcome outcome = Outcome::kUnknown;
  std::uint64_t value = 0;     // written, or read; 0: nothing was ever written
  std::uint64_t expected = 0;  // by a compare-and-set, …
  bool applied = true;         // … which answered whether it was there
  std::int64_t invoked = 0;
  std::int64_t returned = std::numeric_limits<std::int64_t>::max();
};

class History {
 public:
  std::size_t Invoke(std::uint32_t client, std::uint32_t key, Operation::Kind kind, std::uint64_t value,
                     std::int64_t now, std::uint64_t expected = 0);
  void Ok(std::size_t operation, std::int64_t now, std::uint64_t read = 0, bool applied = true);
  void Failed(std::size_t operation, std::int64_t now);

  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

 private:
  std::vector<Operation> operations_;
};

// Nothing: there is such an order. Else which key has none, and the operations around the place where it got stuck.
[[nodiscard]] std::optional<std::string> CheckLinearizable(const std::vector<Operation>& operations);

}  // namespace manta::sim
