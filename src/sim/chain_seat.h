// ChainSeatModel is where a chain's configuration lives when more than one process may be its master: as etcd would
// keep it. One of them has the seat, for a term that it renews; the configuration is replaced by compare and swap.
//
// Times are those of the keeper's own clock. Plain values.
#pragma once

#include <cstdint>
#include <utility>

#include "rules/chain.h"

namespace manta::sim {

class ChainSeatModel {
 public:
  using Holder = std::pair<std::uint32_t, std::uint64_t>;  // which process, in which of its lives

  ChainSeatModel(std::int64_t term_us, const rules::ChainFaults& faults) : term_us_(term_us), faults_(faults) {}

  // Whether `who` has the seat now; it was free, or is its own. A new holder is a new opening.
  bool Take(std::int64_t now_us, const Holder& who) {
    if (who != holder_) {
      if (holder_ != Holder{} && now_us < until_us_ && !faults_.take_held_seat) return false;
      holder_ = who;
      ++openings_;
      ++revision_;
    }
    until_us_ = now_us + term_us_;
    return true;
  }
  // Also after the term, as long as nobody else has come.
  bool Renew(std::int64_t now_us, const Holder& who) {
    if (who != holder_) return false;
    until_us_ = now_us + term_us_;
    return true;
  }
  // The revision that the configuration has then; 0: somebody else has changed it. Asked again, it answers the same.
  std::uint64_t Save(std::uint64_t revision, const rules::ChainConfig& config) {
    if (faults_.save_without_compare) revision = revision_;
    if (revision == revision_) {
      config_ = config;
      return ++revision_;
    }
    return revision + 1 == revision_ && config_ == config ? revision_ : 0;
  }

  [[nodiscard]] const rules::ChainConfig& config() const { return config_; }
  void Begin(const rules::ChainConfig& config) { config_ = config; }
  [[nodiscard]] std::uint64_t openings() const { return openings_; }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  [[nodiscard]] const Holder& holder() const { return holder_; }

 private:
  const std::int64_t term_us_;
  const rules::ChainFaults faults_;
  Holder holder_;
  std::int64_t until_us_ = 0;
  std::uint64_t openings_ = 0;
  std::uint64_t revision_ = 1;
  rules::ChainConfig config_;
};

}  // namespace manta::sim
