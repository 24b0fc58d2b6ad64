// ChainCopy reads a storage as if its log had never been cut: the entries of all tables and the clients' stamps as
// records in the order of their positions, ending with the storage's last. What was overwritten is missing, and what is
// overwritten while it reads is left out: it comes with the log, which goes on where the copy ends.
//
// It keeps the names of all keys in memory, not the values. What it reads first, to find their order, is read page by
// page, each in a round of the loop of its own: the member goes on meanwhile. Threads: one loop's; destroying it drops
// its callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "control/storage.h"
#include "rules/chain.h"

namespace manta::control {

class ChainCopy {
 public:
  using OnRecords = std::function<void(Result<std::vector<rules::ChainRecord>>)>;

  // `last_epoch`: of the storage's last record.
  ChainCopy(base::Loop& loop, Storage& storage, std::uint64_t last_epoch);
  ~ChainCopy() { *alive_ = false; }

  // The records after `after`, where the last call ended or 0. kNotFound: it ended elsewhere. One call at a time, but
  // while it looks for the order a first call takes the place of the one before, which gets no answer.
  void Read(std::uint64_t after, std::size_t limit, OnRecords done);
  [[nodiscard]] std::uint64_t end() const { return end_; }
  // Looks for the order still.
  [[nodiscard]] bool indexing() const { return indexing_; }

 private:
  struct Place {
    bool stamp = false;
    Table table = Table::kMeta;
    std::string key;
    Id client;
    std::uint64_t client_sequence = 0;
  };
  void Index(std::uint8_t table, std::string after, std::function<void(const Status&)> done);
  void Go();
  void Step();
  void Begin(std::uint64_t position);
  void Finish(const Status& status);

  base::Loop& loop_;
  Storage& storage_;
  const std::uint64_t last_epoch_;
  const std::uint64_t end_;  // position
  bool indexing_ = false;
  bool indexed_ = false;
  std::multimap<std::uint64_t, Place> places_;  // by position; sorted as they come, not all in one go
  std::multimap<std::uint64_t, Place>::const_iterator next_;
  std::uint64_t told_ = 0;  // the last position that was given

  // Of the call that is under way.
  OnRecords done_;
  std::size_t limit_ = 0;
  std::vector<rules::ChainRecord> records_;
  std::vector<Write> writes_;  // of the last of them
  std::size_t bytes_ = 0;
  bool running_ = false;
  bool waiting_ = false;  // for the storage
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
