#include "sim/chain_run.h"

#include <algorithm>
#include <optional>
#include <set>

#include "sim/chain_processes.h"
#include "types/text.h"

namespace manta::sim {
namespace {

// What breaks them, and what is checked.
class ChainRun : private ChainProcesses {
 public:
  explicit ChainRun(const ChainModel& model) : ChainProcesses(model) {}

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
    time_.RunUntil(model_.trouble_us, [] { return false; });
    Heal();
    if (!time_.RunUntil(model_.trouble_us + model_.rest_us, [this] { return AtRest(); })) {
      Violation(Cat("stuck: ", WhatIsStuck()));
    } else {
      FinalReads();
      // A write that was given up may have come only now.
      if (!time_.RunUntil(time_.now_us() + model_.rest_us, [this] { return AtRest(); }))
        Violation(Cat("stuck: ", WhatIsStuck()));
    }
    CheckEnd();
    figures_.events = time_.events();
    figures_.trace = time_.trace();
    figures_.seconds = static_cast<double>(time_.now_us()) / 1e6;
    figures_.epochs = Saved().epoch;
    figures_.openings = seat_.openings();
    return figures_;
  }

 private:
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
      if (Chance(0.4))
        slow_until_us_[member] = time_.now_us() + 5'000 + static_cast<std::int64_t>(random_.Below(20'000));
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
    if (!time_.RunUntil(time_.now_us() + 500'000, answered)) Violation("the last reads were not answered");
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
