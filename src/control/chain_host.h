// ChainHost is one member of a chain as a process: it drives a rules::ChainMember over a Storage, and speaks with the
// front, which comes to it, and with the other members, to which it goes (control/chain_wire.h).
//
// A member that the chain counts on and that comes without its copy is refused: it would answer for what it has not.
//
// Its folder keeps which chain it belongs to (`chain`), and the copies of the shard, of which the last one counts: a
// copy that is not the beginning of the chain's log is thrown away and another one is begun (ChainWipe).
//
// It must be given streams whose peer has proved to be of the cluster. Storage that fails ends it (OnFailure): a record
// that is missing in one copy would make it differ from the others.
//
// Threads: one loop's. Lifetime: within that of the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "control/chain_copy.h"
#include "control/chain_link.h"
#include "control/chain_wire.h"
#include "control/storage.h"
#include "rules/chain_member.h"
#include "wire/connection.h"
#include "wire/secrets.h"

namespace manta::control {

// Times of real chains. Over loopback and a local network a death is told by the closed connection; the rest is for
// machines that fall silent.
[[nodiscard]] rules::ChainTimes RealChainTimes();

struct ChainHostOptions {
  std::string folder;
  std::shared_ptr<wire::Secrets> secrets;  // may be null if all members are on this machine
  rules::ChainTimes times = RealChainTimes();
  // Opens the copy of this number, which may be new; and drops one for good. Not given: embedded, in the folder.
  std::function<Result<std::unique_ptr<Storage>>(std::uint64_t copy)> open;
  std::function<void(std::uint64_t copy)> drop;
};

class ChainHost {
 public:
  // Blocks while it opens the storage.
  static Result<std::unique_ptr<ChainHost>> Open(base::Loop& loop, ChainHostOptions options);
  ~ChainHost();
  ChainHost(const ChainHost&) = delete;
  ChainHost& operator=(const ChainHost&) = delete;

  Status Add(wire::Stream stream);
  // The storage failed. This member does nothing any more; end the process.
  void OnFailure(std::function<void(const Status&)> callback) { on_failure_ = std::move(callback); }

  [[nodiscard]] const Storage& storage() const { return *storage_; }
  [[nodiscard]] const rules::ChainMember* member() const { return member_.get(); }
  [[nodiscard]] std::uint64_t copy() const { return copy_; }

 private:
  struct Incoming {
    std::unique_ptr<wire::Connection> connection;
    bool greeted = false;
    bool front = false;
  };

  ChainHost(base::Loop& loop, ChainHostOptions options);
  Status FindCopy();
  Status OpenCopy();
  Result<std::uint64_t> LastEpoch();

  void OnFrame(std::uint64_t serial, wire::Frame& frame);
  Status Greet(std::uint64_t serial, const ChainHello& hello);
  void Become(const ChainHello& hello);
  void Do(const std::function<void(std::int64_t now_us, rules::ChainActions* actions)>& what);
  void Perform(rules::ChainActions actions);
  void Send(const rules::ChainPeer& to, rules::ChainMessage message);
  void StoreRecord(std::uint64_t generation, const rules::ChainRecord& record);
  void Wipe();
  void Fetch(const rules::ChainFetch& fetch);
  void FetchLog(const rules::ChainFetch& fetch);
  void FetchCopy(const rules::ChainFetch& fetch);
  void Lookup(const rules::ChainLookup& lookup);
  void Fail(const Status& why);

  base::Loop& loop_;
  const ChainHostOptions options_;
  std::uint64_t copy_ = 1;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<ChainCopy> reader_;  // feeds a joiner
  std::uint64_t last_epoch_ = 0;       // of the last stored record; 0: not known
  Id chain_;
  std::unique_ptr<rules::ChainMember> member_;  // null: nobody has told yet which one
  std::vector<std::string> addresses_;
  std::map<rules::MemberId, std::unique_ptr<ChainLink>> links_;
  std::uint64_t next_serial_ = 1;
  std::map<std::uint64_t, Incoming> incoming_;
  std::uint64_t front_ = 0;    // serial; 0: none
  std::uint64_t opening_ = 0;  // of the last front
  base::Loop::TimerId timer_ = 0;
  bool failed_ = false;
  std::function<void(const Status&)> on_failure_;
  std::uint64_t life_ = 1;  // of the storage: callbacks of an earlier one mean nothing
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
