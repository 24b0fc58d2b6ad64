// The processes of a simulated chain (sim/chain_run.h): masters, the seat's keeper, members with their disks, clients,
// and the network and clocks between them. For chain_run.cc only, which breaks them and looks at what came out.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rules/chain_client.h"
#include "rules/chain_master.h"
#include "rules/chain_member.h"
#include "sim/chain_disk.h"
#include "sim/chain_run.h"
#include "sim/chain_seat.h"
#include "sim/history.h"
#include "sim/random.h"
#include "sim/timeline.h"
#include "types/text.h"

namespace manta::sim {

using rules::ChainActions;
using rules::ChainConfig;
using rules::ChainMessage;
using rules::MemberId;

inline std::uint64_t ToNumber(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

inline constexpr std::int64_t kTerm = 30'000;      // of the seat
inline constexpr std::int64_t kTermDrift = 4'000;  // by which clocks may differ over a term
inline constexpr std::int64_t kAskSeat = 3'000;    // how often it is renewed, or looked for

// Processes: 0 is the master, then the members, then the clients; with a standby, that one and the seat's keeper.
class ChainProcesses {
 protected:
  explicit ChainProcesses(const ChainModel& model)
      : model_(model),
        times_(SimulatedTimes()),
        random_(model.seed),
        processes_(1 + model.members + model.clients + (model.standby ? 2 : 0)),
        seat_(kTerm, model.faults) {
    for (Clock& clock : clocks_ = std::vector<Clock>(processes_)) {
      clock.offset_us = static_cast<std::int64_t>(random_.Below(1'000'000));
      clock.rate = 1 + model.clock_skew * (2 * random_.Unit() - 1);
    }
    slow_until_us_.assign(processes_, 0);
    for (std::uint32_t i = 0; i < model_.members; ++i) nodes_.push_back(std::make_unique<Node>(times_.client_window));
    for (std::uint32_t i = 0; i < model_.clients; ++i) users_.push_back(std::make_unique<User>());
    masters_.resize(model_.standby ? 2 : 1);
    if (model_.standby) masters_[1].process = 1 + model_.members + model_.clients;
  }

  struct Clock {
    std::int64_t offset_us = 0;
    double rate = 1;
  };
  // One that may be the master.
  struct Front {
    std::uint32_t process = 0;
    std::unique_ptr<rules::ChainMaster> master;  // null: down, or without the seat
    std::uint64_t life = 0;
    bool up = false;
    std::optional<ChainConfig> saving;
    std::uint64_t opening = 0;
    std::uint64_t revision = 0;  // of the configuration that it knows
  };
  struct Node {
    explicit Node(std::uint64_t window) : disk(window) {}
    ChainDisk disk;
    std::unique_ptr<rules::ChainMember> member;  // null: down
    std::uint64_t incarnation = 0;
    bool syncing = false;
    std::uint32_t front = 0;    // process
    std::uint64_t opening = 0;  // of that one; whoever comes with a lower one is refused
  };
  struct User {
    std::unique_ptr<rules::ChainClient> client;
    Id id;
    std::uint64_t life = 0;
    std::map<std::uint64_t, std::size_t> operations;  // by the client's number
    std::map<std::uint64_t, std::pair<Id, std::uint64_t>> writes;
    std::uint64_t sequence = 0;
  };

  // ---- time and events ----

  [[nodiscard]] std::int64_t Now(std::uint32_t process) const {
    const Clock& clock = clocks_[process];
    return clock.offset_us + static_cast<std::int64_t>(static_cast<double>(time_.now_us()) * clock.rate);
  }
  void After(std::int64_t delay_us, std::function<void()> what) { time_.After(delay_us, std::move(what)); }
  void Trace(std::uint64_t word) { time_.Trace(word); }
  void Violation(std::string what) {
    if (figures_.violations.size() < 5) figures_.violations.push_back(std::move(what));
  }
  bool Chance(double part) { return random_.Unit() <= part; }
  // Most are quick; some are not.
  std::int64_t Delay(std::int64_t typical_us) {
    const double slow = trouble_ && Chance(model_.slow) ? 50 : 1;
    return 1 + static_cast<std::int64_t>(random_.Exponential(static_cast<double>(typical_us)) * slow);
  }

  // ---- network ----

  [[nodiscard]] std::uint32_t ProcessOf(const rules::ChainPeer& peer) const {
    switch (peer.kind) {
      case rules::ChainPeer::Kind::kMaster:
        return 0;
      case rules::ChainPeer::Kind::kMember:
        return peer.member;
      case rules::ChainPeer::Kind::kClient:
        break;
    }
    return 1 + model_.members + static_cast<std::uint32_t>(peer.client.hi);
  }
  [[nodiscard]] std::uint32_t KeeperProcess() const { return processes_ - 1; }
  [[nodiscard]] Front* FrontAt(std::uint32_t process) {
    for (Front& front : masters_) {
      if (front.process == process) return &front;
    }
    return nullptr;
  }
  void Send(std::uint32_t from, std::uint32_t to, ChainMessage message) {
    if (to >= processes_ || cuts_.contains({from, to})) return;
    if (trouble_ && Chance(model_.loss)) return;
    const int copies = trouble_ && Chance(model_.doubled) ? 2 : 1;
    auto shared = std::make_shared<const ChainMessage>(std::move(message));
    const Front* const sender = FrontAt(from);
    const std::uint64_t opening = sender != nullptr ? sender->opening : 0;
    for (int i = 0; i < copies; ++i) {
      const bool slow = slow_until_us_[from] > time_.now_us() || slow_until_us_[to] > time_.now_us();
      const auto more = slow ? static_cast<std::int64_t>(random_.Below(20'000)) : 0;
      After(Delay(100) + more, [this, from, to, opening, shared] { Deliver(from, to, opening, *shared); });
    }
  }
  void Deliver(std::uint32_t from, std::uint32_t to, std::uint64_t opening, const ChainMessage& message) {
    Trace((std::uint64_t{from} << 32) ^ (std::uint64_t{to} << 16) ^ message.index());
    if (cuts_.contains({from, to})) return;
    if (Front* const front = FrontAt(to)) {
      if (!front->master) return;
      rules::ChainMasterActions actions;
      front->master->Receive(Now(to), message, &actions);
      Perform(*front, actions);
      if (front->master->outdated()) Lose(*front);
    } else if (to <= model_.members) {
      Node& node = *nodes_[to - 1];
      if (!node.member) return;
      if (model_.standby && FrontAt(from) != nullptr && (node.front != from || node.opening != opening)) return;
      ChainActions actions;
      node.member->Receive(Now(to), message, &actions);
      Perform(to, actions);
    } else {
      const std::uint32_t user = to - 1 - model_.members;
      rules::ChainClientActions actions;
      users_[user]->client->Receive(Now(to), message, &actions);
      Perform(user, actions);
    }
  }

  // ---- the masters ----

  [[nodiscard]] const ChainConfig& Saved() const { return model_.standby ? seat_.config() : saved_; }
  void StartMaster(Front& front) {
    ++front.life;
    front.up = true;
    if (model_.standby) return AskForSeat(front, front.life);
    front.master = std::make_unique<rules::ChainMaster>(Now(0), saved_, times_, model_.faults);
    TickMaster(front, front.life);
  }
  void TickMaster(Front& front, std::uint64_t life) {
    if (!front.master || life != front.life) return;
    rules::ChainMasterActions actions;
    front.master->Tick(Now(front.process), &actions);
    Perform(front, actions);
    if (model_.standby) Greet(front);
    After(times_.renew_us, [this, &front, life] { TickMaster(front, life); });
  }
  void Perform(Front& front, rules::ChainMasterActions& actions) {
    for (rules::ChainMasterAction& action : actions) {
      if (auto* send = std::get_if<rules::ChainSend>(&action)) {
        if (const auto* configure = std::get_if<rules::ChainConfigure>(&send->message)) Seen(configure->config);
        Send(front.process, ProcessOf(send->to), std::move(send->message));
      } else if (auto* publish = std::get_if<rules::ChainPublish>(&action)) {
        for (std::uint32_t i = 0; i < model_.clients; ++i) {
          Send(front.process, 1 + model_.members + i, rules::ChainConfigure{publish->config, 0});
        }
      } else if (auto* save = std::get_if<rules::ChainSave>(&action)) {
        front.saving = save->config;
        if (model_.standby) {
          SaveAtKeeper(front, front.life, save->config);
          continue;
        }
        After(Delay(300), [this, &front, config = save->config, life = front.life] {
          if (!front.master || life != front.life) return;
          saved_ = config;
          SavedBy(front, config.epoch);
        });
      }
    }
  }
  void SavedBy(Front& front, std::uint64_t epoch) {
    front.saving.reset();
    rules::ChainMasterActions more;
    front.master->Saved(Now(front.process), epoch, &more);
    Perform(front, more);
  }

  // ---- the seat, with a standby ----

  // A question to the keeper, and what follows from its answer, unless one of the two gets lost. `then` gets when it
  // was asked, by the asker's clock.
  template <typename Ask, typename Then>
  void AtKeeper(Front& front, const Ask& ask, const Then& then) {
    const std::uint32_t keeper = KeeperProcess();
    if (cuts_.contains({front.process, keeper})) return;
    const std::int64_t asked_us = Now(front.process);
    After(Delay(200), [this, &front, keeper, asked_us, ask, then, life = front.life] {
      const auto answer = ask();
      if (cuts_.contains({keeper, front.process})) return;
      After(Delay(200), [&front, asked_us, answer, then, life] {
        if (front.up && front.life == life) then(asked_us, answer);
      });
    });
  }
  void AskForSeat(Front& front, std::uint64_t life) {
    if (!front.up || life != front.life) return;
    const ChainSeatModel::Holder who{front.process + 1, life};
    struct Answer {
      bool mine = false;
      ChainConfig config;
      std::uint64_t opening = 0;
      std::uint64_t revision = 0;
    };
    if (front.master) {
      AtKeeper(
          front, [this, who] { return seat_.Renew(Now(KeeperProcess()), who); },
          [this, &front](std::int64_t asked_us, bool mine) {
            if (!front.master) return;
            if (!mine) return Lose(front);
            front.master->Hold(asked_us + kTerm - kTermDrift);
          });
    } else {
      AtKeeper(
          front,
          [this, who] {
            const bool mine = seat_.Take(Now(KeeperProcess()), who);
            return Answer{mine, seat_.config(), seat_.openings(), seat_.revision()};
          },
          [this, &front](std::int64_t asked_us, const Answer& answer) {
            if (!answer.mine || front.master) return;
            front.opening = answer.opening;
            front.revision = answer.revision;
            front.master =
                std::make_unique<rules::ChainMaster>(Now(front.process), answer.config, times_, model_.faults);
            front.master->Hold(asked_us + kTerm - kTermDrift);
            TickMaster(front, front.life);
          });
    }
    After(Delay(kAskSeat), [this, &front, life] { AskForSeat(front, life); });
  }
  void SaveAtKeeper(Front& front, std::uint64_t life, const ChainConfig& config) {
    if (!front.master || life != front.life || !front.saving || !(*front.saving == config)) return;
    AtKeeper(
        front, [this, config, revision = front.revision] { return seat_.Save(revision, config); },
        [this, &front, config](std::int64_t, std::uint64_t revision) {
          if (!front.master || !front.saving || !(*front.saving == config)) return;
          if (revision == 0) return Lose(front);
          front.revision = revision;
          SavedBy(front, config.epoch);
        });
    After(5'000, [this, &front, life, config] { SaveAtKeeper(front, life, config); });
  }
  // Somebody else has the seat: from the beginning, as a standby.
  void Lose(Front& front) {
    front.master.reset();
    front.saving.reset();
    StartMaster(front);
  }
  // Members answer to the front with the highest opening that they have met in this life.
  void Greet(Front& front) {
    for (MemberId id = 1; id <= model_.members; ++id) {
      if (cuts_.contains({front.process, id})) continue;
      After(Delay(100), [this, id, process = front.process, opening = front.opening] {
        Node& node = *nodes_[id - 1];
        if (!node.member || opening <= node.opening || cuts_.contains({process, id})) return;
        node.front = process;
        node.opening = opening;
        ChainActions actions;
        node.member->Speak(Now(id), &actions);
        Perform(id, actions);
      });
    }
  }
  void Seen(const ChainConfig& config) {
    const auto [it, fresh] = configs_.try_emplace(config.epoch, config);
    if (!fresh && !(it->second == config)) Violation(Cat("epoch ", config.epoch, " has two configurations"));
  }

  // ---- members ----

  void StartMember(MemberId id) {
    Node& node = *nodes_[id - 1];
    ++node.incarnation;
    node.syncing = false;
    node.opening = 0;
    node.member = std::make_unique<rules::ChainMember>(id, node.incarnation, times_, model_.faults);
    node.member->Restore(node.disk.last(), node.disk.last_epoch());
    for (const auto& [stamp, position] : node.disk.stamps()) node.member->Restore(stamp.first, stamp.second, position);
    TickMember(id, node.incarnation);
  }
  void TickMember(MemberId id, std::uint64_t incarnation) {
    Node& node = *nodes_[id - 1];
    if (!node.member || node.incarnation != incarnation) return;
    ChainActions actions;
    node.member->Tick(Now(id), &actions);
    Perform(id, actions);
    After(times_.renew_us / 2, [this, id, incarnation] { TickMember(id, incarnation); });
  }
  void Perform(MemberId id, ChainActions& actions) {
    Node& node = *nodes_[id - 1];
    for (rules::ChainAction& action : actions) {
      if (auto* send = std::get_if<rules::ChainSend>(&action)) {
        Watch(id, *send);
        const bool up = send->to.kind == rules::ChainPeer::Kind::kMaster;
        Send(id, up ? node.front : ProcessOf(send->to), std::move(send->message));
      } else if (auto* store = std::get_if<rules::ChainStore>(&action)) {
        node.disk.Write(store->generation, std::move(store->record));
        StartSync(id);
      } else if (std::holds_alternative<rules::ChainWipe>(action)) {
        ++figures_.refills;
        node.disk.Wipe();
      } else if (auto* fetch = std::get_if<rules::ChainFetch>(&action)) {
        After(Delay(50), [this, id, incarnation = node.incarnation, asked = *fetch] {
          Node& then = *nodes_[id - 1];
          if (!then.member || then.incarnation != incarnation) return;
          std::vector<rules::ChainRecord> records;
          const bool found = then.disk.Fetch(asked.after, asked.limit, &records);
          for (const rules::ChainRecord& record : records) figures_.copied += record.epoch == rules::kCopiedEpoch;
          ChainActions more;
          then.member->Fetched(Now(id), asked.after, found, std::move(records), &more);
          Perform(id, more);
        });
      } else if (auto* lookup = std::get_if<rules::ChainLookup>(&action)) {
        // Read at one moment, told at another.
        After(Delay(30), [this, id, incarnation = node.incarnation, asked = *lookup] {
          Node& then = *nodes_[id - 1];
          if (!then.member || then.incarnation != incarnation) return;
          After(Delay(30), [this, id, incarnation, token = asked.token, value = then.disk.Get(asked.what)] {
            Node& at = *nodes_[id - 1];
            if (!at.member || at.incarnation != incarnation) return;
            ChainActions more;
            at.member->ReadDone(Now(id), token, value, &more);
            Perform(id, more);
          });
        });
      }
    }
  }
  // One sync at a time, for one record.
  void StartSync(MemberId id) {
    Node& node = *nodes_[id - 1];
    if (node.syncing || !node.disk.waiting()) return;
    node.syncing = true;
    After(Delay(200), [this, id, incarnation = node.incarnation] {
      Node& then = *nodes_[id - 1];
      if (!then.member || then.incarnation != incarnation) return;
      then.syncing = false;
      if (!then.disk.waiting()) return;  // wiped
      const auto [generation, position] = then.disk.Sync();
      ChainActions more;
      then.member->Stored(Now(id), generation, position, &more);
      StartSync(id);
      Perform(id, more);
    });
  }
  // Who acts as the tail, and whether it may.
  void Watch(MemberId id, const rules::ChainSend& send) {
    const rules::ChainMember& member = *nodes_[id - 1]->member;
    const bool read = std::holds_alternative<rules::ChainValue>(send.message);
    const auto* written = std::get_if<rules::ChainWritten>(&send.message);
    if (written != nullptr) {
      const auto [it, fresh] = answered_.try_emplace({written->client, written->sequence}, written->position);
      if (!fresh && it->second != written->position) {
        Violation(Cat("write ", written->sequence, " of a client was answered with positions ", it->second, " and ",
                      written->position));
      }
    }
    if (!read && !(written != nullptr && member.acting_tail())) return;
    const std::uint64_t epoch = member.config().epoch;
    const auto [it, fresh] = acted_.try_emplace(epoch, id);
    if (!fresh && it->second != id) Violation(Cat("members ", it->second, " and ", id, " are tails of epoch ", epoch));
    if (read && acted_.rbegin()->first > epoch && acted_.rbegin()->second != id) {
      Violation(Cat("member ", id, " answered a read in epoch ", epoch, " after member ", acted_.rbegin()->second,
                    " acted as the tail of epoch ", acted_.rbegin()->first));
    }
  }

  // ---- clients ----

  void StartUser(std::uint32_t i) {
    User& user = *users_[i];
    ++user.life;
    user.id = Id{i, user.life};
    if (i == 0 && user.id.empty()) user.id.lo = 1;
    user.client = std::make_unique<rules::ChainClient>(user.id, times_, model_.faults);
    user.operations.clear();
    for (const Front& front : masters_) Send(1 + model_.members + i, front.process, rules::ChainAsk{user.id});
    TickUser(i, user.life);
  }
  void TickUser(std::uint32_t i, std::uint64_t life) {
    User& user = *users_[i];
    if (user.life != life) return;
    rules::ChainClientActions actions;
    user.client->Tick(Now(1 + model_.members + i), &actions);
    Perform(i, actions);
    After(times_.renew_us, [this, i, life] { TickUser(i, life); });
  }
  void Work(std::uint32_t i) {
    if (!trouble_) return;
    User& user = *users_[i];
    const std::size_t most = i == 0 ? 1 : 3;  // the first has one request under way, the others several
    if (user.client->unanswered() < most) Operate(i, random_.Below(2) == 0);
    if (Chance(0.01) && !user.operations.empty()) {
      user.client->GiveUp(user.operations.begin()->first);
      user.operations.erase(user.operations.begin());
      ++figures_.unknown;
    }
    After(Delay(1'000), [this, i] { Work(i); });
  }
  void Operate(std::uint32_t i, bool read, std::uint32_t key) {
    User& user = *users_[i];
    rules::ChainClientActions actions;
    const std::int64_t now = Now(1 + model_.members + i);
    const std::uint64_t value = ++last_value_;
    const std::size_t operation = history_.Invoke(i, key, read ? Operation::Kind::kRead : Operation::Kind::kWrite,
                                                  read ? 0 : value, time_.now_us());
    const std::uint64_t number = read ? user.client->Read(now, Cat("k", key), &actions)
                                      : user.client->Write(now, Cat("k", key, "=", value), &actions);
    user.operations[number] = operation;
    Perform(i, actions);
  }
  void Operate(std::uint32_t i, bool read) { Operate(i, read, static_cast<std::uint32_t>(random_.Below(model_.keys))); }
  void Perform(std::uint32_t i, rules::ChainClientActions& actions) {
    User& user = *users_[i];
    for (rules::ChainClientAction& action : actions) {
      if (auto* send = std::get_if<rules::ChainSend>(&action)) {
        const bool up = send->to.kind == rules::ChainPeer::Kind::kMaster;
        if (up && model_.standby) Send(1 + model_.members + i, masters_[1].process, send->message);
        Send(1 + model_.members + i, ProcessOf(send->to), std::move(send->message));
      } else if (auto* written = std::get_if<rules::ChainWriteDone>(&action)) {
        Done(user, written->number, 0);
        ++figures_.writes;
      } else if (auto* value = std::get_if<rules::ChainReadDone>(&action)) {
        Done(user, value->number, ToNumber(value->value));
        ++figures_.reads;
      }
    }
  }
  void Done(User& user, std::uint64_t number, std::uint64_t value) {
    const auto it = user.operations.find(number);
    if (it == user.operations.end()) return;
    history_.Ok(it->second, time_.now_us(), value);
    user.operations.erase(it);
    Trace(number ^ value);
  }

  const ChainModel& model_;
  const rules::ChainTimes times_;
  Random random_;
  const std::uint32_t processes_;
  std::vector<Clock> clocks_;
  Timeline time_;
  bool trouble_ = true;
  std::set<std::pair<std::uint32_t, std::uint32_t>> cuts_;  // from, to
  std::vector<std::int64_t> slow_until_us_;                 // messages from and to a process

  std::vector<Front> masters_;
  ChainConfig saved_;    // without a standby
  ChainSeatModel seat_;  // with one
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<User>> users_;

  History history_;
  std::uint64_t last_value_ = 0;
  std::map<std::uint64_t, ChainConfig> configs_;                    // told, by epoch
  std::map<std::uint64_t, MemberId> acted_;                         // as the tail, by epoch
  std::map<std::pair<Id, std::uint64_t>, std::uint64_t> answered_;  // positions of writes
  ChainFigures figures_;
};

}  // namespace manta::sim
