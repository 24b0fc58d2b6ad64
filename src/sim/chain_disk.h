// The storage of one simulated chain member: a log that is cut now and then, and the tables that it makes. Of what was
// written and not yet synced, a crash keeps a part of the beginning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rules/chain.h"
#include "sim/random.h"

namespace manta::sim {

class ChainDisk {
 public:
  struct Cell {
    std::string value;
    std::uint64_t version = 0;
  };
  using Stamp = std::pair<Id, std::uint64_t>;

  explicit ChainDisk(std::uint64_t window) : window_(window) {}

  void Write(std::uint64_t generation, rules::ChainRecord record) {
    pending_.emplace_back(generation, std::move(record));
  }
  // The oldest that waits is on the disk now; its generation and position.
  std::pair<std::uint64_t, std::uint64_t> Sync() {
    auto [generation, record] = std::move(pending_.front());
    pending_.pop_front();
    const std::uint64_t position = record.position;
    Apply(std::move(record));
    return {generation, position};
  }
  [[nodiscard]] bool waiting() const { return !pending_.empty(); }
  void Crash(Random& random) {
    if (!pending_.empty()) {
      for (std::uint64_t keep = random.Below(pending_.size() + 1); keep > 0; --keep) Sync();
    }
    pending_.clear();
    copy_.clear();
  }
  void Wipe() {
    const std::uint64_t window = window_;
    *this = ChainDisk(window);
  }
  // Forgets the log up to somewhere.
  void Cut(Random& random) {
    const std::uint64_t keep = random.Below(6);
    while (log_.size() > keep) {
      cut_ = log_.front().position;
      log_.pop_front();
    }
  }

  // false: cut.
  bool Fetch(std::uint64_t after, std::uint64_t limit, std::vector<rules::ChainRecord>* out) {
    if (after >= cut_) {
      for (const rules::ChainRecord& record : log_) {
        if (record.position > after && out->size() < limit) out->push_back(record);
      }
      return true;
    }
    if (after == 0) MakeCopy();
    if (copy_.empty() || after >= copy_.back().position) return false;
    const auto first = std::find_if(copy_.begin(), copy_.end(), [&](const auto& one) { return one.position > after; });
    // Only on from where this copy was read before.
    if (after != 0 && (first == copy_.begin() || (first - 1)->position != after)) return false;
    for (auto it = first; it != copy_.end() && out->size() < limit; ++it) out->push_back(*it);
    return true;
  }

  [[nodiscard]] std::uint64_t last() const { return last_; }
  [[nodiscard]] std::uint64_t last_epoch() const { return log_.empty() ? 0 : log_.back().epoch; }
  [[nodiscard]] std::string Get(const std::string& key) const {
    const auto it = cells_.find(key);
    return it == cells_.end() ? "0" : it->second.value;
  }
  [[nodiscard]] const std::map<std::string, Cell>& cells() const { return cells_; }
  [[nodiscard]] const std::map<Stamp, std::uint64_t>& stamps() const { return stamps_; }
  [[nodiscard]] const std::vector<Stamp>& twice() const { return twice_; }

 private:
  void Apply(rules::ChainRecord record) {
    last_ = record.position;
    const std::size_t equals = record.payload.find('=');
    if (equals != std::string::npos) {
      cells_[record.payload.substr(0, equals)] = {record.payload.substr(equals + 1), record.position};
    }
    if (!record.client.empty()) {
      const Stamp stamp(record.client, record.client_sequence);
      if (!stamps_.try_emplace(stamp, record.position).second) twice_.push_back(stamp);
    }
    log_.push_back(std::move(record));
  }
  // The tables as a log of what is left in them.
  void MakeCopy() {
    std::map<std::uint64_t, rules::ChainRecord> records;
    const auto at = [&](std::uint64_t position) -> rules::ChainRecord& {
      rules::ChainRecord& record = records[position];
      record.position = position;
      record.epoch = rules::kCopiedEpoch;
      return record;
    };
    for (const auto& [key, cell] : cells_) at(cell.version).payload = key + "=" + cell.value;
    for (const auto& [stamp, position] : stamps_) {
      // Those that clients may still send again.
      const auto newest = std::prev(stamps_.upper_bound({stamp.first, ~std::uint64_t{0}}));
      if (stamp.second + 2 * window_ <= newest->first.second) continue;
      at(position).client = stamp.first;
      at(position).client_sequence = stamp.second;
    }
    if (last_ != 0) at(last_).epoch = last_epoch() == 0 ? rules::kCopiedEpoch : last_epoch();
    copy_.clear();
    for (auto& [position, record] : records) copy_.push_back(std::move(record));
  }

  std::uint64_t window_;
  std::deque<std::pair<std::uint64_t, rules::ChainRecord>> pending_;
  std::deque<rules::ChainRecord> log_;
  std::uint64_t cut_ = 0;  // the log starts after this position
  std::uint64_t last_ = 0;
  std::map<std::string, Cell> cells_;
  std::map<Stamp, std::uint64_t> stamps_;
  std::vector<Stamp> twice_;
  std::vector<rules::ChainRecord> copy_;
};

}  // namespace manta::sim
