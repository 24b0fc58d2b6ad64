// EtcdKeeper keeps a chain's configuration in etcd. Two keys: `PREFIX/config`, replaced by compare and swap of its
// revision, and `PREFIX/front`, the seat: it names the front and goes with that one's etcd lease, `term_us` after the
// last renewal.
//
// Whoever finds no seat takes it and raises the number of openings in one transaction; others wait. A front whose term
// lapsed because etcd did not answer takes the seat again if nobody else has come meanwhile.
//
// Until: the seat counts from when a renewal was *asked* for, less what clocks may drift in a term; etcd's own count
// began later. So when somebody else takes it, this front has ceased to grant leases, and those it granted are waited
// for by the next (rules::ChainMaster, sim/chain_seat.h).
//
// Ending it gives the seat back. Threads: one loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "control/chain_keeper.h"
#include "control/etcd_client.h"

namespace manta::control {

struct EtcdOptions {
  std::vector<std::string> servers;                   // host:port
  std::string prefix = "manta";                       // of the keys: one for each chain of each cluster
  std::string name;                                   // of this front, for those who wait
  std::int64_t term_us = 4'000'000;                   // whole seconds; etcd gives two at least
  std::int64_t look_us = 200'000;                     // how often one who waits looks
  std::function<bool()> give_up;                      // asked while waiting; may be null
  std::function<void(const std::string& text)> note;  // what an operator may want to know; may be null
};

class EtcdKeeper : public ChainKeeper {
 public:
  static Result<std::unique_ptr<EtcdKeeper>> Create(base::Loop& loop, EtcdOptions options);
  ~EtcdKeeper() override;

  // Waits as long as there is another front, or no etcd.
  Result<SavedChain> Take(const Opening& opening) override;
  void Save(const SavedChain& chain, std::function<void(const Status&)> done) override;
  [[nodiscard]] std::int64_t UntilMicros() const override { return until_us_; }
  void OnLost(std::function<void(const Status&)> callback) override { on_lost_ = std::move(callback); }
  [[nodiscard]] std::string Where() const override;

  // As it is in etcd now, without taking part; for tools and tests. kNotFound: there is none.
  static Result<SavedChain> Look(base::Loop& loop, const EtcdOptions& options);

 private:
  struct Found {
    std::int64_t config_revision = 0;  // 0: there is none
    std::string config;
    std::int64_t seat_lease = 0;  // 0: nobody has it
    std::string seat_name;
  };
  EtcdKeeper(base::Loop& loop, EtcdOptions options) : loop_(loop), options_(std::move(options)) {}
  [[nodiscard]] std::string ConfigKey() const { return options_.prefix + "/config"; }
  [[nodiscard]] std::string SeatKey() const { return options_.prefix + "/front"; }
  [[nodiscard]] std::string LookBody() const;
  [[nodiscard]] std::string TakeBody(const std::string* config) const;
  static Result<Found> ReadFound(const Json& answer);
  Status GrantLease();
  void Extend(std::int64_t asked_us);
  void Renew();
  void TakeAgain();
  void TrySave();
  void Lose(const std::string& why);
  void Note(const std::string& text) const;

  base::Loop& loop_;
  const EtcdOptions options_;
  std::unique_ptr<EtcdClient> client_;
  std::int64_t lease_ = 0;
  std::int64_t lease_asked_us_ = 0;
  std::int64_t revision_ = 0;  // of our configuration
  std::int64_t until_us_ = 0;
  bool seated_ = false;    // nobody has taken over, as far as we know
  bool attached_ = false;  // the seat goes with `lease_`
  bool renewing_ = false;
  std::string saving_;  // the configuration that is on its way
  std::function<void(const Status&)> on_saved_;
  std::function<void(const Status&)> on_lost_;
  base::Loop::TimerId renew_timer_ = 0;
  base::Loop::TimerId save_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
