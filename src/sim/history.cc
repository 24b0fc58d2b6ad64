#include "sim/history.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "types/id.h"
#include "types/text.h"

namespace manta::sim {
namespace {

// Invocations and returns of one key's operations in order of time, as a list from which operations are taken out and
// put back in the reverse order.
class Search {
 public:
  explicit Search(const std::vector<Operation>& operations) : operations_(operations) {
    struct Moment {
      std::int64_t at;
      bool returns;
      std::size_t operation;
    };
    std::vector<Moment> moments;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      moments.push_back({operations[i].invoked, false, i});
      moments.push_back({operations[i].returned, true, i});
    }
    // Of the same instant, invocations first: they overlap.
    std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
      return a.at != b.at ? a.at < b.at : !a.returns && b.returns;
    });
    nodes_.resize(moments.size() + 1);
    calls_.resize(operations.size());
    returns_.resize(operations.size());
    for (std::size_t i = 0; i < moments.size(); ++i) {
      Node& node = nodes_[i + 1];
      node.operation = moments[i].operation;
      node.returns = moments[i].returns;
      node.before = i;
      node.after = i + 2 <= moments.size() ? i + 2 : kEnd;
      (node.returns ? returns_ : calls_)[node.operation] = i + 1;
    }
    nodes_[0].after = moments.empty() ? kEnd : 1;
    taken_.resize((operations.size() + 63) / 64);
  }

  // The operation at which every order got stuck that came furthest; none: there is an order.
  std::optional<std::size_t> Stuck() {
    std::vector<std::pair<std::size_t, std::uint64_t>> path;  // operation, value before it
    std::uint64_t value = 0;
    std::size_t furthest = 0;
    std::size_t stuck = 0;
    std::size_t at = nodes_[0].after;
    while (nodes_[0].after != kEnd) {
      const Node& node = nodes_[at];
      if (!node.returns) {
        const std::size_t operation = node.operation;
        std::uint64_t next = value;
        if (Step(operations_[operation], &next)) {
          Flip(operation);
          if (seen_.insert(Remembered(next)).second) {
            path.emplace_back(operation, value);
            value = next;
            Remove(calls_[operation]);
            Remove(returns_[operation]);
            at = nodes_[0].after;
            continue;
          }
          Flip(operation);
        }
        at = node.after;
        continue;
      }
      // This one has ended, and was not explained.
      if (path.size() >= furthest) {
        furthest = path.size();
        stuck = node.operation;
      }
      if (path.empty()) return stuck;
      const auto [operation, before] = path.back();
      path.pop_back();
      value = before;
      Flip(operation);
      Insert(returns_[operation]);
      Insert(calls_[operation]);
      at = nodes_[calls_[operation]].after;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kEnd = ~std::size_t{0};
  struct Node {
    std::size_t operation = 0;
    bool returns = false;
    std::size_t before = 0;
    std::size_t after = kEnd;
  };
  struct Hash {
    std::size_t operator()(const std::vector<std::uint64_t>& words) const {
      std::uint64_t hash = 0;
      for (const std::uint64_t word : words) hash = Mix(hash ^ word) + 0x9e3779b97f4a7c15ULL;
      return hash;
    }
  };

  // Whether the operation can have given its answer at this value; what it makes of it.
  static bool Step(const Operation& operation, std::uint64_t* value) {
    switch (operation.kind) {
      case Operation::Kind::kRead:
        return operation.value == *value;
      case Operation::Kind::kWrite:
        *value = operation.value;
        return true;
      case Operation::Kind::kCompareAndSet: {
        const bool fits = operation.expected == *value;
        if (operation.outcome == Operation::Outcome::kOk && fits != operation.applied) return false;
        if (fits) *value = operation.value;
        return true;
      }
    }
    return false;
  }
  void Flip(std::size_t operation) { taken_[operation / 64] ^= std::uint64_t{1} << (operation % 64); }
  [[nodiscard]] std::vector<std::uint64_t> Remembered(std::uint64_t value) const {
    std::vector<std::uint64_t> words = taken_;
    words.push_back(value);
    return words;
  }
  void Remove(std::size_t at) {
    const Node& node = nodes_[at];
    nodes_[node.before].after = node.after;
    if (node.after != kEnd) nodes_[node.after].before = node.before;
  }
  void Insert(std::size_t at) {
    const Node& node = nodes_[at];
    nodes_[node.before].after = at;
    if (node.after != kEnd) nodes_[node.after].before = at;
  }

  const std::vector<Operation>& operations_;
  std::vector<Node> nodes_;  // the first is the start
  std::vector<std::size_t> calls_, returns_;
  std::vector<std::uint64_t> taken_;  // bits
  std::unordered_set<std::vector<std::uint64_t>, Hash> seen_;
};

std::string Show(const Operation& one) {
  const std::string span = one.outcome == Operation::Outcome::kUnknown ? Cat("[", one.invoked, ", ?)")
                                                                       : Cat("[", one.invoked, ", ", one.returned, "]");
  switch (one.kind) {
    case Operation::Kind::kRead:
      return Cat("client ", one.client, " read ", one.value, " ", span);
    case Operation::Kind::kWrite:
      return Cat("client ", one.client, " wrote ", one.value, " ", span);
    case Operation::Kind::kCompareAndSet:
      return Cat("client ", one.client, one.applied ? " set " : " did not set ", one.value, " for ", one.expected, " ",
                 span);
  }
  return {};
}

}  // namespace

std::size_t History::Invoke(std::uint32_t client, std::uint32_t key, Operation::Kind kind, std::uint64_t value,
                            std::int64_t now, std::uint64_t expected) {
  Operation operation;
  operation.client = client;
  operation.key = key;
  operation.kind = kind;
  operation.value = value;
  operation.expected = expected;
  operation.invoked = now;
  operations_.push_back(operation);
  return operations_.size() - 1;
}

void History::Ok(std::size_t operation, std::int64_t now, std::uint64_t read, bool applied) {
  Operation& one = operations_[operation];
  one.outcome = Operation::Outcome::kOk;
  one.returned = now;
  one.applied = applied;
  if (one.kind == Operation::Kind::kRead) one.value = read;
}

void History::Failed(std::size_t operation, std::int64_t now) {
  operations_[operation].outcome = Operation::Outcome::kFailed;
  operations_[operation].returned = now;
}

std::optional<std::string> CheckLinearizable(const std::vector<Operation>& operations) {
  std::map<std::uint32_t, std::vector<Operation>> keys;
  for (const Operation& one : operations) {
    if (one.outcome == Operation::Outcome::kFailed) continue;
    // A read that nobody was told of explains nothing.
    if (one.outcome == Operation::Outcome::kUnknown && one.kind == Operation::Kind::kRead) continue;
    keys[one.key].push_back(one);
  }
  for (const auto& [key, own] : keys) {
    const std::optional<std::size_t> stuck = Search(own).Stuck();
    if (!stuck) continue;
    std::string text = Cat("key ", key, " has no order that explains what clients saw; stuck at:");
    const Operation& bad = own[*stuck];
    for (const Operation& one : own) {
      if (one.returned >= bad.invoked - 20'000 && one.invoked <= bad.returned) text += "\n  " + Show(one);
    }
    return text;
  }
  return std::nullopt;
}

}  // namespace manta::sim
