#include "control/kept_actors_world.h"

#include <gtest/gtest.h>

#include "types/text.h"

namespace manta::control {

// ---- disks ----

class HomeWorld::SimStorage final : public Storage {
 public:
  SimStorage(HomeWorld& world, Disk& disk) : world_(world), disk_(disk) { ++disk_.epoch; }
  // What was under way is there, up to somewhere.
  ~SimStorage() override {
    *alive_ = false;
    for (std::uint64_t left = world_.Draw(disk_.pending.size() + 1); left > 0; --left) Finish(false);
    disk_.pending.clear();
    ++disk_.life;
  }
  void Apply(Batch batch, OnApplied done) override {
    disk_.pending.emplace_back(std::move(batch), std::move(done));
    disk_.busy_until = std::max(disk_.busy_until, world_.now_) + world_.Delay(2'000);
    world_.At(disk_.busy_until, [this, alive = alive_] {
      if (*alive) Finish(true);
    });
  }
  void Get(Table table, std::string key, OnValue done) override {
    Later([this, table, key = std::move(key), done = std::move(done)] {
      const auto it = disk_.entries.find({table, key});
      done(it == disk_.entries.end() ? std::optional<Entry>() : it->second);
    });
  }
  void Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) override {
    Later([this, table, prefix = std::move(prefix), after = std::move(after), limit, done = std::move(done)] {
      Page page;
      const std::size_t most = limit == 0 ? kPageEntries : std::min(limit, kPageEntries);
      for (auto it = disk_.entries.lower_bound({table, prefix}); it != disk_.entries.end(); ++it) {
        if (it->first.first != table || !it->first.second.starts_with(prefix)) break;
        if (it->first.second <= after) continue;
        page.more = page.entries.size() == most;
        if (page.more) break;
        page.entries.push_back(it->second);
      }
      done(std::move(page));
    });
  }
  [[nodiscard]] std::uint64_t Applied(const Id&, std::uint64_t) const override { return 0; }
  void EachStamp(const OnStamp&) const override {}
  void Forget(const Id&) override {}
  [[nodiscard]] std::vector<Id> Clients() const override { return {}; }
  [[nodiscard]] std::uint64_t epoch() const override { return disk_.epoch; }
  [[nodiscard]] std::uint64_t last_sequence() const override { return disk_.sequence; }
  void EntriesAfter(std::uint64_t, std::size_t, OnBatches done) override {
    done(Status(Code::kNotFound, "there is no log"));
  }

 private:
  void Later(Then what) {
    world_.After(world_.Delay(300), [alive = alive_, what = std::move(what)] {
      if (*alive) what();
    });
  }
  void Finish(bool tell) {
    const auto [batch, done] = std::move(disk_.pending.front());
    disk_.pending.pop_front();
    ++disk_.sequence;
    for (const Write& write : batch.writes) {
      if (write.value.has_value()) {
        disk_.entries[{write.table, write.key}] = Entry{write.key, disk_.sequence, *write.value};
      } else {
        disk_.entries.erase({write.table, write.key});
      }
    }
    if (tell) done(disk_.sequence);
  }

  HomeWorld& world_;
  Disk& disk_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// ---- time and links ----

namespace {

constexpr std::size_t kRecord = sizeof(std::uint64_t);

std::string Bytes8(std::uint64_t value) { return {reinterpret_cast<const char*>(&value), kRecord}; }

// A journal: how many calls, and then these.
std::vector<JournalPart> PartsOf(const std::vector<std::uint64_t>& done, std::size_t from) {
  std::string records;
  for (std::size_t i = from; i < done.size(); ++i) records += Bytes8(done[i]);
  return {{(1 + from) * kRecord, std::move(records)}, {0, Bytes8(done.size())}};
}

std::vector<std::uint64_t> CallsOf(const std::string& journal) {
  std::uint64_t count = 0;
  if (journal.size() >= kRecord) std::memcpy(&count, journal.data(), kRecord);
  std::vector<std::uint64_t> done(count);
  if (journal.size() < (1 + count) * kRecord) return {~std::uint64_t{0}};  // it has holes
  if (count > 0) std::memcpy(done.data(), journal.data() + kRecord, count * kRecord);
  return done;
}

wire::Frame Decoded(const std::string& bytes) {
  wire::FrameReader reader;
  wire::Frame frame;
  reader.Add(std::as_bytes(std::span(bytes)), {});
  EXPECT_TRUE(reader.Next(&frame).value());
  return frame;
}

}  // namespace

std::int64_t HomeWorld::Delay(std::int64_t typical_us) {
  const std::uint64_t slow = Draw(40) == 0 ? 50 : 1;  // now and then
  return static_cast<std::int64_t>((1 + Draw(static_cast<std::uint64_t>(2 * typical_us))) * slow);
}

void HomeWorld::Violation(const std::string& what) {
  if (figures_.violations.size() < 5) figures_.violations.push_back(Cat(now_ / 1000, " ms: ", what));
}

std::optional<std::size_t> HomeWorld::ActorOf(const Id& id) const {
  for (std::size_t i = 0; i < kActors; ++i) {
    if (IdOf(i) == id) return i;
  }
  return std::nullopt;
}

void HomeWorld::At(NodeNumber number, std::int64_t us, Then what) {
  After(us, [this, number, what = std::move(what)] {
    Node& node = nodes_[number];
    if (!node.up) return;
    if (node.still) {
      node.frozen.push_back(what);
    } else {
      what();
    }
  });
}

void HomeWorld::Through(Wire& wire, int direction, Then what) {
  if (!wire.open) return;
  wire.last[direction] = std::max(wire.last[direction] + 1, now_ + Delay(200));
  At(wire.last[direction], [&wire, serial = wire.serial, what = std::move(what)] {
    if (wire.serial != serial) return;
    if (wire.cut) {
      wire.held.push_back(what);
    } else {
      what();
    }
  });
}

void HomeWorld::Lose(Wire& wire) {
  wire.open = false;
  ++wire.serial;
  wire.held.clear();
  for (const auto& [call, done] : std::exchange(wire.asked, {})) done(nullptr);
}

// ---- the head ----

HomeWorld::HomeWorld(std::uint64_t seed, HomeBugs bugs) : random_(seed), bugs_(bugs) {
  loop_ = std::move(*base::Loop::Create());
}
HomeWorld::~HomeWorld() = default;

void HomeWorld::StartHead() {
  head_ = std::make_unique<Head>();
  ++head_life_;
  std::vector<std::unique_ptr<Storage>> shards;
  for (Disk& disk : disks_) shards.push_back(std::make_unique<SimStorage>(*this, disk));
  head_->tables = std::make_unique<Tables>(*loop_, std::move(shards));
  KeptActors::Ways ways;
  ways.send = [this](NodeNumber node, const std::string& frame) { FromHead(node, frame); };
  ways.candidates = [this] {
    std::vector<NodeNumber> out;
    for (const NodeNumber node : head_->heard) {
      if (!dead_.contains(node) && nodes_[node].wire.open && !head_->draining.contains(node)) out.push_back(node);
    }
    return out;
  };
  ways.moved = [](const Id&, NodeNumber) {};
  head_->kept = std::make_unique<KeptActors>(*head_->tables, std::move(ways));
  head_->tables->Open([this](const Status& opened) {
    if (!opened.ok()) return Violation(opened.message());
    const auto lives = [this](NodeNumber node) { return !dead_.contains(node); };
    head_->kept->Open(lives, [this, life = head_life_](const Status&) {
      for (auto& [number, node] : nodes_) {
        if (node.up) Connect(number);
        // Who does not come back in time is dead.
        After(kDeadUs, [this, life, number = number] {
          if (head_ != nullptr && life == head_life_ && !head_->heard.contains(number)) Declare(number, "silent");
        });
      }
      for (std::size_t i = 0; i < kClients; ++i) {
        clients_[i].wire.open = true;
        for (const auto& [actor, line] : clients_[i].lines) {
          if (line.home == 0) Look(i, actor);
        }
      }
    });
  });
}

void HomeWorld::CrashHead() {
  head_->kept.reset();
  head_.reset();
  for (auto& [number, node] : nodes_) Lose(node.wire);
  for (Client& client : clients_) Lose(client.wire);
  ++figures_.heads;
  After(Delay(200'000), [this] { StartHead(); });
}

void HomeWorld::Connect(NodeNumber number) {
  At(number, Delay(2'000), [this, number] {
    Node& node = nodes_[number];
    if (head_ == nullptr || node.wire.open) return;
    if (dead_.contains(number)) return EndNode(number);
    node.wire.open = true;
    // As its daemon does: what it has, before it is heard.
    for (const auto& [actor, home] : node.homes) {
      if (home.leaving) continue;
      ToHead(number, node.wire, wire::EncodeFrame(wire::ActorAdopted{IdOf(actor), {}}));
    }
    Through(node.wire, 0, [this, number] {
      if (!head_->heard.insert(number).second) return;
      if (nodes_[number].draining) head_->draining.insert(number);
      head_->kept->NodeUp(number);
    });
  });
}

void HomeWorld::ToHead(NodeNumber from, Wire& wire, std::string frame) {
  Through(wire, 0, [this, from, &wire, serial = wire.serial, frame = std::move(frame)] {
    const wire::Frame decoded = Decoded(frame);
    if (dead_.contains(from)) return;
    head_->kept->OnFrame(from, decoded, [this, &wire, serial](const std::string& answer) {
      if (wire.serial != serial) return;
      Through(wire, 1, [&wire, answer] {
        wire::Frame back = Decoded(answer);
        auto asked = wire.asked.extract(back.call);
        if (!asked.empty()) asked.mapped()(&back);
      });
    });
  });
}

template <typename M>
void HomeWorld::Ask(NodeNumber from, Wire& wire, const M& message, OnFrame done) {
  const std::uint64_t call = ++serial_;
  if (!wire.open) return After(1, [done = std::move(done)] { done(nullptr); });
  wire.asked[call] = std::move(done);
  ToHead(from, wire, wire::EncodeFrame(message, call));
}

void HomeWorld::FromHead(NodeNumber to, const std::string& frame) {
  Through(nodes_[to].wire, 1, [this, to, frame] {
    At(to, 0, [this, to, frame] {
      wire::Frame decoded = Decoded(frame);
      OnHead(to, decoded);
    });
  });
}

void HomeWorld::Declare(NodeNumber number, const std::string& why) {
  if (head_ == nullptr || !dead_.insert(number).second) return;
  Lose(nodes_[number].wire);
  head_->kept->NodeGone(number, why);
  for (std::size_t i = 0; i < kClients; ++i) {
    After(Delay(20'000), [this, i, number] {
      clients_[i].dead.insert(number);
      for (const auto& [actor, line] : clients_[i].lines) {
        if (line.home == number) LostHome(i, actor, number, 0);
      }
    });
  }
}

// ---- nodes ----

void HomeWorld::StartNode() {
  Node& node = nodes_[++last_node_];
  node.up = true;
  node.unable = trouble_ && last_node_ > 1 && Draw(6) == 0;
  if (head_ != nullptr) Connect(last_node_);
}

void HomeWorld::EndNode(NodeNumber number) {
  Node& node = nodes_[number];
  if (!std::exchange(node.up, false)) return;
  node.homes.clear();
  node.frozen.clear();
  Lose(node.wire);
  // It is noticed at once by a head that is there, and after a while by the next.
  After(Delay(500), [this, number] { Declare(number, "its connection closed"); });
}

void HomeWorld::Cut(NodeNumber number) {
  Node& node = nodes_[number];
  if (node.wire.cut || !node.wire.open) return;
  node.wire.cut = true;
  const std::uint64_t cut = ++node.cuts;
  const std::uint64_t life = head_life_;
  const auto lasts = [this, number, cut] { return nodes_[number].cuts == cut && nodes_[number].wire.cut; };
  After(rules::NodeLease::kLengthUs, [this, number, lasts] {
    if (!lasts() || !nodes_[number].up) return;
    nodes_[number].still = true;
    ++figures_.still;
  });
  After(kDeadUs, [this, number, lasts, life] {
    if (lasts() && life == head_life_) Declare(number, "silent");
  });
  After(1'000'000 + static_cast<std::int64_t>(Draw(5'000'000)), [this, number] {
    Node& at = nodes_[number];
    at.wire.cut = false;
    for (const Then& what : std::exchange(at.wire.held, {})) what();
    if (!at.up) return;
    if (dead_.contains(number)) return EndNode(number);
    figures_.went_on += at.still ? 1 : 0;
    at.still = false;
    for (const Then& what : std::exchange(at.frozen, {})) what();
  });
}

void HomeWorld::OnHead(NodeNumber number, wire::Frame& frame) {
  Node& node = nodes_[number];
  if (const Result<wire::KeptJournal> journal = frame.As<wire::KeptJournal>(); journal.ok()) {
    auto& [bytes, next] = node.coming[ActorOf(journal.value().actor).value()];
    for (const JournalPart& part : journal.value().parts) {
      bytes.resize(std::max(bytes.size(), part.offset + part.bytes.size()));
      bytes.replace(part.offset, part.bytes.size(), part.bytes);
    }
    next = std::max(next, journal.value().number + 1);
  } else if (const Result<wire::AdoptActor> order = frame.As<wire::AdoptActor>(); order.ok()) {
    Adopt(number, ActorOf(order.value().made.order.actor).value(), order.value());
  }
}

void HomeWorld::Adopt(NodeNumber number, std::size_t actor, const wire::AdoptActor& order) {
  Node& node = nodes_[number];
  const auto tell = [this, number, actor](const Failure& failure) {
    ToHead(number, nodes_[number].wire, wire::EncodeFrame(wire::ActorAdopted{IdOf(actor), failure}));
  };
  if (const auto it = node.homes.find(actor); it != node.homes.end()) {
    if (!it->second.leaving) return tell({});
    // It has come back: as to any home.
    for (const std::size_t client : it->second.callers) {
      After(Delay(200), [this, client, actor, number] { LostHome(client, actor, number, 0); });
    }
    node.homes.erase(it);
  }
  const auto came = node.coming.extract(actor);
  if (node.unable) return tell(Failure{Code::kActorDied, "its program is not to be had", {}, {}});
  Home& home = node.homes[actor];
  home.epoch = order.epoch + 1;
  if (!came.empty()) {
    home.done = CallsOf(came.mapped().first);
    home.next = std::max<std::uint64_t>(came.mapped().second, 1);
    if (bugs_.forgets_the_end && !home.done.empty()) home.done.pop_back();
  }
  home.kept = home.done.size();
  ++figures_.adopted;
  tell({});
  StartProcess(number, actor);
}

void HomeWorld::StartProcess(NodeNumber number, std::size_t actor) {
  At(number, Delay(10'000), [this, number, actor] {
    const auto it = nodes_[number].homes.find(actor);
    if (it == nodes_[number].homes.end() || it->second.running || it->second.leaving) return;
    Home& home = it->second;
    home.running = true;
    home.busy = false;
    home.serial = ++serial_;
    for (const std::size_t client : home.callers) {
      After(Delay(200),
            [this, client, actor, number, serial = home.serial] { Attached(client, actor, number, serial); });
    }
    SendParts(number, actor);
  });
}

void HomeWorld::EndProcess(NodeNumber number, std::size_t actor) {
  Home& home = nodes_[number].homes[actor];
  home.running = false;
  home.serial = 0;
  home.queue.clear();
  home.unanswered.clear();
}

void HomeWorld::Serve(NodeNumber number, std::size_t actor) {
  Home& home = nodes_[number].homes[actor];
  if (!home.running || home.busy || home.queue.empty()) return;
  home.busy = true;
  At(number, Delay(500), [this, number, actor, serial = home.serial] {
    const auto it = nodes_[number].homes.find(actor);
    if (it == nodes_[number].homes.end() || it->second.serial != serial || serial == 0) return;
    Home& at = it->second;
    Answer answer = at.queue.front();
    at.queue.pop_front();
    at.busy = false;
    const auto known = std::find(at.done.begin(), at.done.end(), answer.call);
    if (answer.call == 0) {
      answer.place = at.done.size();  // what it sees: as many
    } else if (known != at.done.end() && !bugs_.forgets_what_it_has_run) {
      ++figures_.again;
      answer.place = static_cast<std::uint64_t>(known - at.done.begin()) + 1;
    } else {
      at.done.push_back(answer.call);
      answer.place = at.done.size();
    }
    if ((answer.place <= at.kept && at.unanswered.empty()) || bugs_.answers_before_kept) {  // each in its turn
      Reply(number, actor, answer);
    } else {
      at.unanswered.push_back(answer);
    }
    SendParts(number, actor);
    Serve(number, actor);
  });
}

void HomeWorld::Reply(NodeNumber number, std::size_t actor, const Answer& answer) {
  std::int64_t& last = lanes_[{answer.client + kClients, number}];
  last = std::max(last + 1, now_ + Delay(200));
  At(last, [this, actor, answer] { Answered(answer.client, actor, answer); });
}

void HomeWorld::SendParts(NodeNumber number, std::size_t actor) {
  Home& home = nodes_[number].homes[actor];
  if (home.under_way || home.kept == home.done.size()) return;
  home.under_way = true;
  wire::KeepJournal message{IdOf(actor), home.epoch, home.next++, 0, PartsOf(home.done, home.kept)};
  if (message.number % 8 == 0) {  // all of it, now and then
    message.since = message.number;
    message.parts = PartsOf(home.done, 0);
  }
  SendPart(number, actor, std::make_shared<const wire::KeepJournal>(std::move(message)), home.done.size());
}

void HomeWorld::SendPart(NodeNumber number, std::size_t actor, const std::shared_ptr<const wire::KeepJournal>& message,
                         std::uint64_t count) {
  Ask(number, nodes_[number].wire, *message, [this, number, actor, message, count](wire::Frame* frame) {
    // What the answer is, is known now; it is read when the node acts.
    const bool lost = frame == nullptr;
    const bool refused = !lost && frame->kind == wire::Kind::kFailed;
    At(number, lost ? 50'000 : 0, [this, number, actor, message, count, lost, refused] {
      const auto it = nodes_[number].homes.find(actor);
      if (it == nodes_[number].homes.end()) return;
      if (lost) return SendPart(number, actor, message, count);
      it->second.under_way = false;
      if (!refused || bugs_.takes_refusals) return Kept(number, actor, count);
      EndProcess(number, actor);
    });
  });
}

void HomeWorld::Kept(NodeNumber number, std::size_t actor, std::uint64_t count) {
  Home& home = nodes_[number].homes[actor];
  home.kept = std::max(home.kept, count);
  while (!home.unanswered.empty() && home.unanswered.front().place <= home.kept) {
    Reply(number, actor, home.unanswered.front());
    home.unanswered.pop_front();
  }
  SendParts(number, actor);
}

// ---- a node that is drained ----

void HomeWorld::Drain(NodeNumber number) {
  Node& node = nodes_[number];
  if (!node.up || std::exchange(node.draining, true)) return;
  Through(node.wire, 0, [this, number] { head_->draining.insert(number); });
  LeaveHomes(number);
}

void HomeWorld::LeaveHomes(NodeNumber number) {
  Node& node = nodes_[number];
  for (auto& [actor, home] : node.homes) {
    if (!home.running || home.leaving || now_ < home.stays_until) continue;
    home.leaving = true;
    if (!bugs_.leaves_alive && !bugs_.takes_refusals) EndProcess(number, actor);
    Leave(number, actor);
  }
  const bool last = std::none_of(nodes_.begin(), nodes_.end(),
                                 [&](const auto& entry) { return entry.first != number && entry.second.up; });
  if (node.homes.empty() && !last && made_) return EndNode(number);
  At(number, 10'000, [this, number] { LeaveHomes(number); });
}

void HomeWorld::Leave(NodeNumber number, std::size_t actor) {
  const auto it = nodes_[number].homes.find(actor);
  if (it == nodes_[number].homes.end()) return;
  const auto again = [this, number, actor](std::int64_t us) {
    At(number, us, [this, number, actor] { Leave(number, actor); });
  };
  if (!it->second.leaving) return;  // it has come back
  const bool waits = it->second.under_way && !bugs_.leaves_alive && !bugs_.takes_refusals;
  if (waits) return again(5'000);
  Ask(number, nodes_[number].wire, wire::LeaveHome{IdOf(actor)}, [this, number, actor, again](wire::Frame* frame) {
    if (frame == nullptr) return again(50'000);
    const Result<wire::ActorHome> home = frame->As<wire::ActorHome>();
    if (!home.ok()) return again(1'000'000);  // nobody can have it
    At(number, 0, [this, number, actor, home] {
      Node& node = nodes_[number];
      const auto at = node.homes.find(actor);
      if (at == node.homes.end()) return;
      if (home.value().home == number) {
        ++figures_.stayed;
        at->second.stays_until = now_ + 5'000'000;
        return;
      }
      ++figures_.left;
      for (const std::size_t client : at->second.callers) {
        After(Delay(200), [this, client, actor, number] { LostHome(client, actor, number, 0); });
      }
      node.homes.erase(at);
    });
  });
}

// ---- callers ----

void HomeWorld::Look(std::size_t client, std::size_t actor) {
  Line& line = clients_[client].lines[actor];
  if (line.home != 0 || std::exchange(line.looking, true)) return;
  Ask(0, clients_[client].wire, wire::FindHome{IdOf(actor)}, [this, client, actor](wire::Frame* frame) {
    Line& at = clients_[client].lines[actor];
    at.looking = false;
    const bool failed = frame == nullptr || frame->kind == wire::Kind::kFailed;
    const NodeNumber home = failed ? 0 : frame->As<wire::ActorHome>().value().home;
    if (failed || clients_[client].dead.contains(home)) {
      return After(50'000, [this, client, actor] { Look(client, actor); });
    }
    at.home = home;
    Attach(client, actor);
  });
}

void HomeWorld::Attach(std::size_t client, std::size_t actor) {
  const NodeNumber number = clients_[client].lines[actor].home;
  At(number, Delay(200), [this, client, actor, number] {
    const auto it = nodes_[number].homes.find(actor);
    if (it == nodes_[number].homes.end()) {
      return After(Delay(200), [this, client, actor, number] { LostHome(client, actor, number, 50'000); });
    }
    it->second.callers.insert(client);
    if (!it->second.running) return;
    After(Delay(200),
          [this, client, actor, number, serial = it->second.serial] { Attached(client, actor, number, serial); });
  });
}

void HomeWorld::LostHome(std::size_t client, std::size_t actor, NodeNumber node, std::int64_t again_us) {
  Line& line = clients_[client].lines[actor];
  if (line.home != node) return;
  line.home = 0;
  line.serial = 0;
  line.floors.clear();
  After(again_us, [this, client, actor] { Look(client, actor); });
}

void HomeWorld::Attached(std::size_t client, std::size_t actor, NodeNumber node, std::uint64_t serial) {
  Line& line = clients_[client].lines[actor];
  if (line.home != node || serial <= line.serial) return;
  line.serial = serial;
  line.floors.clear();
  for (const std::uint64_t call : line.pending) SendCall(client, actor, {client, call, 0, 0});
  Pump(client, actor);
  Read(client, actor);
}

void HomeWorld::SendCall(std::size_t client, std::size_t actor, const Answer& call) {
  const Line& line = clients_[client].lines[actor];
  std::int64_t& last = lanes_[{client, line.home}];
  last = std::max(last + 1, now_ + Delay(200));
  At(last, [this, node = line.home, serial = line.serial, actor, call] {
    At(node, 0, [this, node, serial, actor, call] {
      const auto it = nodes_[node].homes.find(actor);
      if (it == nodes_[node].homes.end() || it->second.serial != serial) return;
      it->second.queue.push_back(call);
      Serve(node, actor);
    });
  });
}

void HomeWorld::Pump(std::size_t client, std::size_t actor) {
  Line& line = clients_[client].lines[actor];
  while (line.made < kCalls && line.pending.size() < kAhead) {
    line.pending.push_back((client + 1) * 1'000'000 + ++line.made);
    ++figures_.calls;
    if (line.serial != 0) SendCall(client, actor, {client, line.pending.back(), 0, 0});
  }
}

void HomeWorld::Read(std::size_t client, std::size_t actor) {
  Line& line = clients_[client].lines[actor];
  if (line.serial == 0 || !line.floors.empty()) return;
  line.floors[++line.reads] = seen_[actor];
  SendCall(client, actor, {client, 0, line.reads, 0});
}

void HomeWorld::Answered(std::size_t client, std::size_t actor, const Answer& answer) {
  Line& line = clients_[client].lines[actor];
  if (answer.call == 0) {
    const auto floor = line.floors.extract(answer.read);
    if (floor.empty()) return;
    if (answer.place < floor.mapped()) {
      Violation(Cat("a read saw ", answer.place, " calls when ", floor.mapped(), " had been answered"));
    }
    return After(line.made < kCalls ? 10'000 : 400'000, [this, client, actor] { Read(client, actor); });
  }
  const auto [known, fresh] = answers_[actor].emplace(answer.call, answer.place);
  if (!fresh && known->second != answer.place) {
    Violation(Cat("call ", answer.call, " was answered ", known->second, " and then ", answer.place));
  }
  const auto it = std::find(line.pending.begin(), line.pending.end(), answer.call);
  if (it == line.pending.end()) return;  // answered before
  if (it != line.pending.begin()) Violation(Cat("call ", answer.call, " was answered out of order"));
  line.pending.erase(it);
  seen_[actor] = std::max(seen_[actor], answer.place);
  // Not too fast: the calls are to last as long as the trouble.
  After(Delay(150'000), [this, client, actor] { Pump(client, actor); });
}

// ---- what breaks, and the end ----

void HomeWorld::Fault() {
  if (!trouble_) return;
  std::vector<NodeNumber> up;
  for (const auto& [number, node] : nodes_) {
    if (node.up) up.push_back(number);
  }
  // Mostly the oldest, which are homes.
  const NodeNumber some = up.empty() ? 0 : up[Draw(Draw(2) == 0 ? std::min<std::size_t>(up.size(), 2) : up.size())];
  switch (Draw(6)) {
    case 0:
      if (some == 0) break;
      ++figures_.crashed;
      EndNode(some);
      break;
    case 1:
      if (head_ != nullptr) CrashHead();
      break;
    case 2:
      if (some != 0) Cut(some);
      break;
    case 3:
      if (some != 0 && up.size() > 1) Drain(some);
      break;
    case 4:
      for (std::size_t actor = 0; actor < kActors; ++actor) {
        if (some == 0 || !nodes_[some].homes.contains(actor) || nodes_[some].homes[actor].leaving) continue;
        EndProcess(some, actor);
        StartProcess(some, actor);
      }
      break;
    default:
      break;
  }
  if (up.size() < 4) StartNode();
  After(Delay(300'000), [this] { Fault(); });
}

bool HomeWorld::AllAnswered() {
  for (const Client& client : clients_) {
    for (const auto& [actor, line] : client.lines) {
      if (line.made < kCalls || !line.pending.empty()) return false;
    }
  }
  return made_;
}

HomeFigures HomeWorld::Run() {
  StartHead();
  for (int i = 0; i < 3; ++i) StartNode();
  // The first node is their first home.
  After(1'000'000, [this] {
    for (std::size_t actor = 0; actor < kActors; ++actor) {
      wire::KeepActor order;
      order.made.order.actor = IdOf(actor);
      nodes_[1].homes[actor];
      Ask(1, nodes_[1].wire, order, [this, actor](wire::Frame* frame) {
        if (frame == nullptr || frame->kind == wire::Kind::kFailed) return Violation("it cannot be kept");
        StartProcess(1, actor);
        for (std::size_t client = 0; client < kClients; ++client) Look(client, actor);
        if (actor > 0) return;
        made_ = true;
        After(500'000, [this] { Fault(); });
      });
    }
  });
  At(kTroubleUs, [this] {
    trouble_ = false;
    for (auto& [number, node] : nodes_) node.unable = false;
    if (head_ == nullptr) return;  // it is on its way
    StartNode();
  });
  // Somebody who can have them, whatever has become of the rest.
  At(kTroubleUs + 8'000'000, [this] { StartNode(); });
  while (!events_.empty() && now_ < kTroubleUs + 60'000'000 && !(now_ > kTroubleUs && AllAnswered())) {
    auto next = events_.extract(events_.begin());
    now_ = next.key().first;
    ++figures_.events;
    next.mapped()();
    if (!figures_.violations.empty()) break;
  }
  Check();
  return figures_;
}

void HomeWorld::Check() {
  if (!figures_.violations.empty()) return;
  for (std::size_t actor = 0; actor < kActors; ++actor) {
    const Home* home = nullptr;
    for (const auto& [number, node] : nodes_) {
      if (!node.up || dead_.contains(number) || !node.homes.contains(actor) || node.homes.at(actor).leaving) continue;
      if (home != nullptr) Violation(Cat("actor ", actor, " has two homes"));
      home = &node.homes.at(actor);
    }
    for (const auto& [call, place] : answers_[actor]) {
      if (home != nullptr && (place > home->done.size() || home->done[place - 1] != call)) {
        Violation(Cat("call ", call, " of actor ", actor, " was answered ", place, ", which is not so any more"));
      }
    }
    if (home != nullptr && home->done.size() != kClients * kCalls) {
      Violation(Cat("actor ", actor, " has acted on ", home->done.size(), " calls, not ", kClients * kCalls));
    }
    for (std::size_t client = 0; client < kClients; ++client) {
      const Line& line = clients_[client].lines[actor];
      if (line.pending.empty() && line.made == kCalls) continue;
      Violation(Cat("client ", client, " waits for ", line.pending.size(), " calls of actor ", actor, ", at home on ",
                    line.home, ", process ", line.serial));
    }
  }
}

void HomeFigures::Add(const HomeFigures& other) {
  events += other.events;
  calls += other.calls;
  adopted += other.adopted;
  left += other.left;
  stayed += other.stayed;
  again += other.again;
  crashed += other.crashed;
  heads += other.heads;
  still += other.still;
  went_on += other.went_on;
}

std::string HomeFigures::Describe() const {
  return Cat(events, " events, ", calls, " calls, ", again, " recognised; ", adopted, " new homes, ", left,
             " of them from drained nodes, ", stayed, " stayed; ", crashed, " nodes and ", heads, " heads killed, ",
             still, " nodes stood still, ", went_on, " of them went on");
}

}  // namespace manta::control
