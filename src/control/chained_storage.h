// ChainedStorage keeps a shard in a chain of members (control/chain_host.h), each a process with a storage of its own:
// a write is done when all of them have it, and the loss of all but one loses nothing.
//
// It is the front: it dials the members, is the chain's master (rules::ChainMaster) and its one client
// (rules::ChainClient). The configuration is with a ChainKeeper: a file in `folder`, on this machine's disk, unless
// told otherwise. What each survives: doc/replication.md.
//
// What has no answer for `patience` fails with kUnavailable; such a write may still take effect, and Applied tells as
// soon as it is known.
//
// Threads: one loop's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "control/chain_config.h"
#include "control/chain_host.h"
#include "control/chain_keeper.h"
#include "control/chain_link.h"
#include "control/memory_table.h"
#include "control/storage.h"
#include "rules/chain_client.h"
#include "rules/chain_master.h"

namespace manta::control {

struct ChainedOptions {
  std::string folder;                   // for the configuration, without a keeper
  std::shared_ptr<ChainKeeper> keeper;  // of the configuration; null: the folder
  std::vector<std::string> addresses;   // of the members, always in this order; more may be added at the end
  std::shared_ptr<wire::Secrets> secrets;
  std::int64_t patience_us = 10'000'000;
  rules::ChainTimes times = RealChainTimes();
  // Another front has come, or the configuration cannot be saved; end the process, which is how clients find the other.
  // Nothing is answered from then on. Null: everything fails with the reason.
  std::function<void(const Status& why)> on_stop;
};

class ChainedStorage : public Storage {
 public:
  // Blocks until this process is the front (ChainKeeper::Take), and then until the chain answers, for `patience` at
  // most. kInvalid: another process is, or the configuration is of other members. kLost: members follow a later
  // configuration than the one that was kept.
  static Result<std::unique_ptr<ChainedStorage>> Open(base::Loop& loop, ChainedOptions options);
  ~ChainedStorage() override;

  void Apply(Batch batch, OnApplied done) override;
  void Get(Table table, std::string key, OnValue done) override;
  void Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) override;
  [[nodiscard]] std::uint64_t Applied(const Id& client, std::uint64_t client_sequence) const override;
  void EachStamp(const OnStamp& take) const override;
  void Forget(const Id& client) override;
  [[nodiscard]] std::vector<Id> Clients() const override;
  [[nodiscard]] std::uint64_t epoch() const override { return saved_.openings; }
  [[nodiscard]] std::uint64_t last_sequence() const override { return last_sequence_; }
  // kNotFound: ask a member.
  void EntriesAfter(std::uint64_t sequence, std::size_t limit, OnBatches done) override;

  [[nodiscard]] const rules::ChainConfig& config() const { return master_->config(); }
  // "epoch 7: 2 3 (1 joins)"
  [[nodiscard]] std::string Describe() const;
  // Whenever the configuration has changed; for logs and tests.
  void OnConfig(std::function<void()> callback) { on_config_ = std::move(callback); }

 private:
  struct Asked {
    std::int64_t until_us = 0;
    Id client;  // of a write
    std::uint64_t client_sequence = 0;
    OnApplied on_applied;                                // of a write
    std::function<void(Result<ChainAnswer>)> on_answer;  // of a read
  };

  ChainedStorage(base::Loop& loop, ChainedOptions options);
  Status Prepare();
  Status Load();
  void Connect();
  ChainHello HelloTo(rules::MemberId member);
  void OnMessage(rules::MemberId member, const rules::ChainMessage& message);
  void OnDown(rules::MemberId member);
  void Tick();
  void Perform(rules::ChainMasterActions actions);
  void Perform(rules::ChainClientActions actions);
  void Send(const rules::ChainPeer& to, rules::ChainMessage message);
  void Ask(const ChainRequest& request, std::function<void(Result<ChainAnswer>)> done);
  void Remember(const Id& client, std::uint64_t client_sequence, std::uint64_t position);
  void Stop(const Status& why);
  void Refuse(const std::function<void()>& say) const;

  base::Loop& loop_;
  const ChainedOptions options_;
  const std::shared_ptr<ChainKeeper> keeper_;
  SavedChain saved_;
  Id front_;  // names this opening, as a client
  std::unique_ptr<rules::ChainMaster> master_;
  std::unique_ptr<rules::ChainClient> client_;
  std::map<rules::MemberId, std::unique_ptr<ChainLink>> links_;
  std::map<rules::MemberId, std::uint64_t> incarnations_;  // heard over the present link
  std::uint64_t next_incarnation_ = 1;
  std::map<std::uint64_t, Asked> asked_;  // by the client's number
  std::unordered_map<Id, std::vector<Stamp>> clients_;
  std::uint64_t last_sequence_ = 0;
  Status stopped_;
  std::function<void()> on_config_;
  base::Loop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
