#include "sim/chain_run.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "rules/chain_client.h"
#include "rules/chain_master.h"
#include "rules/chain_member.h"
#include "sim/chain_disk.h"
#include "sim/chain_seat.h"
#include "sim/event_heap.h"
#include "sim/history.h"
#include "sim/random.h"
#include "types/text.h"

namespace manta::sim {
namespace {

using rules::ChainActions;
using rules::ChainConfig;
using rules::ChainMessage;
using rules::MemberId;

std::uint64_t ToNumber(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

constexpr std::int64_t kTerm = 30'000;      // of the seat
constexpr std::int64_t kTermDrift = 4'000;  // by which clocks may differ over a term
constexpr std::int64_t kAskSeat = 3'000;    // how often it is renewed, or looked for

// Processes: 0 is the master, then the members, then the clients; with a standby, that one and the seat's keeper.
class ChainRun {
 public:
  explicit ChainRun(const ChainModel& model)
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

  ChainFigures Run() {
    saved_.epoch = rules::kCopiedEpoch;
    saved_.members = {1};
    seat_.Begin(saved_);
    for (Front& front : masters_) StartMaster(front);
    for (MemberId i = 1; i <= model_.members; ++i) StartMember(i);
    for (std::uint32_t i = 0; i < model_.clients; ++i) {
      StartUser(i);
      After(1'000, [this, i] { Work(i); });
    }
    if (model_.fault_us > 0) ScheduleFault();
    RunUntil(model_.trouble_us, [] { return false; });
    Heal();
    if (!RunUntil(model_.trouble_us + model_.rest_us, [this] { return AtRest(); })) {
      Violation(Cat("stuck: ", WhatIsStuck()));
    } else {
      FinalReads();
      // A write that was given up may have come only now.
      if (!RunUntil(now_us_ + model_.rest_us, [this] { return AtRest(); })) Violation(Cat("stuck: ", WhatIsStuck()));
    }
    CheckEnd();
    figures_.seconds = static_cast<double>(now_us_) / 1e6;
    figures_.epochs = Saved().epoch;
    figures_.openings = seat_.openings();
    return figures_;
  }

 private:
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
    return clock.offset_us + static_cast<std::int64_t>(static_cast<double>(now_us_) * clock.rate);
  }
  void After(std::int64_t delay_us, std::function<void()> what) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(work_.size());
      work_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    work_[slot] = std::move(what);
    heap_.Push({now_us_ + delay_us, 0, slot});
  }
  bool RunUntil(std::int64_t until_us, const std::function<bool()>& done) {
    while (!heap_.empty() && heap_.top().at_ns <= until_us) {
      if (done()) return true;
      const Event event = heap_.top();
      heap_.Pop();
      now_us_ = event.at_ns;
      const std::function<void()> what = std::move(work_[event.what]);
      work_[event.what] = nullptr;
      free_.push_back(event.what);
      ++figures_.events;
      what();
    }
    now_us_ = std::max(now_us_, until_us);
    return done();
  }
  void Trace(std::uint64_t word) { figures_.trace = Mix(figures_.trace ^ word) + static_cast<std::uint64_t>(now_us_); }
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
      const bool slow = slow_until_us_[from] > now_us_ || slow_until_us_[to] > now_us_;
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
    const std::size_t operation =
        history_.Invoke(i, key, read ? Operation::Kind::kRead : Operation::Kind::kWrite, read ? 0 : value, now_us_);
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
    history_.Ok(it->second, now_us_, value);
    user.operations.erase(it);
    Trace(number ^ value);
  }

  // ---- faults ----

  void ScheduleFault() {
    After(1 + static_cast<std::int64_t>(random_.Exponential(model_.fault_us)), [this] {
      if (!trouble_) return;
      Fault();
      ScheduleFault();
    });
  }
  void Fault() {
    const double which = random_.Unit();
    auto member = static_cast<MemberId>(1 + random_.Below(model_.members));
    if (which < model_.crash_all) {
      for (MemberId id = 1; id <= model_.members; ++id) Crash(id, Chance(0.5) ? 500 : 20'000);
      if (Chance(0.5)) CrashMaster();
    } else if (which < 0.40) {
      // Often the one that matters.
      const MemberId tail = Saved().tail();
      Crash(Chance(0.4) ? Saved().head() : Chance(0.5) && tail != 0 ? tail : member, Chance(0.5) ? 500 : 30'000);
    } else if (which < 0.52) {
      if (model_.standby && Chance(0.6)) {
        if (Chance(0.5)) {
          PartitionMaster();
        } else {
          Split();
        }
      } else {
        CrashMaster();
      }
    } else if (which < 0.60) {
      const auto user = static_cast<std::uint32_t>(random_.Below(model_.clients));
      figures_.unknown += users_[user]->operations.size();
      StartUser(user);
    } else if (which < 0.66) {
      nodes_[member - 1]->disk.Cut(random_);
    } else {
      // The tail is the one whose reads could be wrong.
      if (Chance(0.4) && Saved().tail() != 0) member = Saved().tail();
      if (Chance(0.4)) slow_until_us_[member] = now_us_ + 5'000 + static_cast<std::int64_t>(random_.Below(20'000));
      Partition(member);
    }
  }
  void Crash(MemberId id, std::int64_t down_us) {
    Node& node = *nodes_[id - 1];
    if (!node.member) return;
    ++figures_.crashes;
    node.member.reset();
    node.disk.Crash(random_);
    if (Chance(0.8)) {  // the master hears of it
      TellGone(id, Delay(200), true);
    }
    After(Delay(down_us), [this, id] {
      if (!nodes_[id - 1]->member) StartMember(id);
    });
  }
  // The links of masters to this life of a member break.
  void TellGone(MemberId id, std::int64_t delay_us, bool certain) {
    After(delay_us, [this, id, certain, incarnation = nodes_[id - 1]->incarnation] {
      for (Front& front : masters_) {
        if (!front.master) continue;
        rules::ChainMasterActions actions;
        front.master->Gone(Now(front.process), id, incarnation, certain, &actions);
        Perform(front, actions);
      }
    });
  }
  // Of two, mostly the one that has the seat.
  Front& ThisMaster() {
    return model_.standby && (masters_[1].master != nullptr) == Chance(0.8) ? masters_[1] : masters_[0];
  }
  void CrashMaster() {
    Front& front = ThisMaster();
    if (!front.up) return;
    ++figures_.master_crashes;
    front.master.reset();
    front.up = false;
    ++front.life;
    if (front.saving && !model_.standby && Chance(0.5)) saved_ = *front.saving;  // it was on the disk already
    front.saving.reset();
    After(Delay(3'000), [this, &front] {
      if (!front.up) StartMaster(front);
    });
  }
  // A master that lives, from the keeper and some members; for longer than a term, or not.
  void PartitionMaster() {
    ++figures_.partitions;
    const std::uint32_t process = ThisMaster().process;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> cut;
    const auto away = [&](std::uint32_t other) {
      cut.emplace_back(process, other);
      if (Chance(0.7)) cut.emplace_back(other, process);
    };
    if (Chance(0.8)) away(KeeperProcess());
    for (MemberId id = 1; id <= model_.members; ++id) {
      if (Chance(0.4)) away(id);
    }
    for (const auto& pair : cut) cuts_.insert(pair);
    // The other one sees the world differently.
    if (Chance(0.5)) {
      const std::uint32_t other = process == 0 ? masters_[1].process : 0;
      const auto member = static_cast<MemberId>(1 + random_.Below(model_.members));
      cut.emplace_back(other, member);
      cut.emplace_back(member, other);
      cuts_.insert({other, member});
      cuts_.insert({member, other});
    }
    After(Delay(Chance(0.5) ? 10'000 : 60'000), [this, cut] {
      for (const auto& pair : cut) cuts_.erase(pair);
    });
  }
  // Two worlds that know nothing of each other, one of them with the keeper of the seat: the master, the tail and some
  // clients, and the rest.
  void Split() {
    ++figures_.partitions;
    const MemberId tail = Saved().tail();
    const std::uint32_t master = ThisMaster().process;
    std::set<std::uint32_t> here;
    for (std::uint32_t i = 0; i < processes_; ++i) {
      const bool with = i == master || (i == tail && Chance(0.8));
      const bool without = i == KeeperProcess() || FrontAt(i) != nullptr;
      if (with || (!without && Chance(0.4))) here.insert(i);
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> cut;
    for (std::uint32_t from = 0; from < processes_; ++from) {
      for (std::uint32_t to = 0; to < processes_; ++to) {
        if (here.contains(from) != here.contains(to)) cut.emplace_back(from, to);
      }
    }
    for (const auto& pair : cut) cuts_.insert(pair);
    After(20'000 + Delay(60'000), [this, cut] {
      for (const auto& pair : cut) cuts_.erase(pair);
    });
  }
  // One member from some others, in one direction or both; or from everybody.
  void Partition(MemberId member) {
    ++figures_.partitions;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> cut;
    const bool all = Chance(0.5);
    const bool both = Chance(0.7);
    const std::uint32_t end = Chance(0.5) ? processes_ : 1 + model_.members;  // clients may still reach it
    for (std::uint32_t other = 0; other < end; ++other) {
      if (other == member || (!all && !Chance(0.4))) continue;
      cut.emplace_back(member, other);
      if (both) cut.emplace_back(other, member);
    }
    for (const auto& pair : cut) cuts_.insert(pair);
    if (Chance(0.6) && cuts_.contains({member, 0})) {
      TellGone(member, Delay(500), false);
    }
    After(Delay(Chance(0.5) ? 5'000 : 40'000), [this, cut] {
      for (const auto& pair : cut) cuts_.erase(pair);
    });
  }
  void Heal() {
    trouble_ = false;
    cuts_.clear();
    slow_until_us_.assign(processes_, 0);
    for (Front& front : masters_) {
      if (!front.up) StartMaster(front);
    }
    for (MemberId id = 1; id <= model_.members; ++id) {
      if (!nodes_[id - 1]->member) StartMember(id);
    }
  }

  // ---- the end ----

  bool AtRest() {
    const bool led =
        std::any_of(masters_.begin(), masters_.end(), [](const Front& one) { return one.master != nullptr; });
    if (!led || Saved().members.size() != model_.members || Saved().joiner != 0) return false;
    for (const auto& user : users_) {
      if (user->client->unanswered() > 0) return false;
    }
    const std::uint64_t last = nodes_[0]->disk.last();
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [&](const auto& node) { return !node->disk.waiting() && node->disk.last() == last; });
  }
  std::string WhatIsStuck() const {
    const ChainConfig& config = Saved();
    std::string text = Cat("epoch ", config.epoch, ", members");
    for (const MemberId id : config.members) text += Cat(" ", id);
    text += Cat(", joiner ", config.joiner, config.switching ? " switching" : "", "; stored");
    for (const auto& node : nodes_) text += Cat(" ", node->disk.last());
    text += "; unanswered";
    for (const auto& user : users_) text += Cat(" ", user->client->unanswered());
    return text;
  }
  void FinalReads() {
    for (std::uint32_t key = 0; key < model_.keys; ++key) Operate(0, true, key);
    const auto answered = [this] { return users_[0]->client->unanswered() == 0; };
    if (!RunUntil(now_us_ + 500'000, answered)) Violation("the last reads were not answered");
  }
  void CheckEnd() {
    for (MemberId id = 1; id <= model_.members; ++id) {
      const ChainDisk& disk = nodes_[id - 1]->disk;
      if (!disk.twice().empty()) {
        Violation(Cat("member ", id, " applied write ", disk.twice().front().second, " of a client twice"));
      }
    }
    if (figures_.violations.empty()) {
      for (MemberId id = 1; id <= model_.members; ++id) {
        const ChainDisk& disk = nodes_[id - 1]->disk;
        for (const auto& [key, cell] : nodes_[0]->disk.cells()) {
          if (disk.Get(key) != cell.value) Violation(Cat("members 1 and ", id, " differ in ", key));
        }
        for (const auto& [stamp, position] : disk.stamps()) {
          const auto it = answered_.find(stamp);
          if (it != answered_.end() && it->second != position) {
            Violation(
                Cat("a write that was answered with position ", it->second, " is at ", position, " of member ", id));
          }
        }
      }
    }
    if (const std::optional<std::string> found = CheckLinearizable(history_.operations())) Violation(*found);
  }

  const ChainModel& model_;
  const rules::ChainTimes times_;
  Random random_;
  const std::uint32_t processes_;
  std::vector<Clock> clocks_;
  std::int64_t now_us_ = 0;
  EventHeap heap_;
  std::vector<std::function<void()>> work_;
  std::vector<std::uint32_t> free_;
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

}  // namespace

void ChainFigures::Add(const ChainFigures& other) {
  violations.insert(violations.end(), other.violations.begin(), other.violations.end());
  trace = Mix(trace ^ other.trace);
  events += other.events;
  writes += other.writes;
  reads += other.reads;
  unknown += other.unknown;
  epochs += other.epochs;
  crashes += other.crashes;
  master_crashes += other.master_crashes;
  openings += other.openings;
  partitions += other.partitions;
  refills += other.refills;
  copied += other.copied;
  seconds += other.seconds;
}

std::string ChainFigures::Describe() const {
  return Cat(static_cast<std::uint64_t>(seconds), " virtual seconds, ", events, " events, ", writes, " writes, ", reads,
             " reads, ", unknown, " unknown, ", epochs, " epochs, ", crashes, " crashes, ", master_crashes,
             " of the master, ", openings, " seats taken, ", partitions, " partitions, ", refills, " refills, ", copied,
             " copied records");
}

rules::ChainTimes SimulatedTimes() {
  rules::ChainTimes times;
  times.renew_us = 2'000;
  times.lease_us = 8'000;
  times.drift_us = 1'000;
  times.silent_us = 30'000;
  times.resend_us = 4'000;
  times.stall_us = 40'000;
  times.away_us = 10'000;
  times.window_records = 8;
  times.batch_records = 4;
  times.keep_records = 4;
  times.near_records = 2;
  times.client_window = 4;
  return times;
}

ChainFigures RunChain(const ChainModel& model) { return ChainRun(model).Run(); }

}  // namespace manta::sim
