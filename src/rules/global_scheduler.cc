#include "rules/global_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <set>

#include "types/id.h"
#include "types/text.h"

namespace manta::rules {
namespace {

double At(const std::vector<double>& amounts, std::uint32_t number) {
  return number < amounts.size() ? amounts[number] : 0;
}

void AddAt(std::vector<double>* amounts, std::uint32_t number, double amount) {
  if (number >= amounts->size()) amounts->resize(number + 1);
  (*amounts)[number] += amount;
}

template <typename T>
bool Contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool Able(const std::vector<std::uint32_t>& sorted, std::uint32_t place) {
  return std::binary_search(sorted.begin(), sorted.end(), place);
}

}  // namespace

GlobalScheduler::GlobalScheduler(std::uint32_t replica, const Options& options)
    : options_(options), replica_(replica), random_(Mix(replica + 1)) {}

// ---- events ----

bool GlobalScheduler::Heard(const Heartbeat& heartbeat) {
  auto it = by_id_.find(heartbeat.node);
  if (it == by_id_.end()) {
    std::uint32_t place = 0;
    if (vacant_.empty()) {
      place = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      place = vacant_.back();
      vacant_.pop_back();
    }
    nodes_[place] = Node();
    nodes_[place].id = heartbeat.node;
    it = by_id_.emplace(heartbeat.node, place).first;
  }
  Node& node = nodes_[it->second];
  if (node.lives &&
      std::pair(heartbeat.incarnation, heartbeat.sequence) <= std::pair(node.incarnation, node.sequence)) {
    return false;
  }
  if (node.lives && node.incarnation != heartbeat.incarnation) DropTickets(it->second);
  if (!node.lives || node.total != heartbeat.total || node.labels != heartbeat.labels ||
      node.draining != heartbeat.draining) {
    node.total = heartbeat.total;
    node.labels = heartbeat.labels;
    node.draining = heartbeat.draining;
    node.has.assign(numbers_.size(), 0);
    for (const auto& [name, amount] : heartbeat.total.amounts()) {
      AddAt(&node.has, Number(name), static_cast<double>(amount));
    }
    ++version_;
  }
  node.lives = true;
  node.incarnation = heartbeat.incarnation;
  node.sequence = heartbeat.sequence;
  node.available.assign(numbers_.size(), 0);
  for (const auto& [name, amount] : heartbeat.available.amounts()) {
    AddAt(&node.available, Number(name), static_cast<double>(amount));
  }
  node.backlog.assign(numbers_.size(), 0);
  for (const auto& [name, work] : heartbeat.backlog) AddAt(&node.backlog, Number(name), work);
  node.classes = heartbeat.classes;
  for (const ClassLoad& load : heartbeat.classes) {
    if (load.mean_run_us > 0) run_us_[load.id].Add(load.mean_run_us);
  }
  for (const std::uint64_t ticket : heartbeat.arrived) Close(ticket);
  Transferred(heartbeat.node, heartbeat.fetched_bytes, heartbeat.fetched_us);
  return true;
}

void GlobalScheduler::NodeDown(NodeId id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return;
  const std::uint32_t place = it->second;
  DropTickets(place);
  nodes_[place] = Node();
  vacant_.push_back(place);
  by_id_.erase(it);
  ++version_;
}

void GlobalScheduler::Transferred(NodeId id, std::uint64_t bytes, std::int64_t us) {
  if (bytes == 0 || us <= 0) return;
  const double speed = static_cast<double>(bytes) / static_cast<double>(us);
  bytes_per_us_.Add(speed);
  const auto it = by_id_.find(id);
  if (it != by_id_.end()) nodes_[it->second].bytes_per_us.Add(speed);
}

void GlobalScheduler::Bounced(std::uint64_t ticket, const Heartbeat& load) {
  ++counts_.bounces;
  Close(ticket);
  Heard(load);
}

// ---- the decision ----

std::optional<std::vector<Placement>> GlobalScheduler::PlacePreferred(const PlaceRequest& request,
                                                                      std::int64_t now_us) {
  if (request.prefer.empty()) return std::nullopt;
  PlaceRequest narrow = request;
  narrow.labels.insert(narrow.labels.end(), narrow.prefer.begin(), narrow.prefer.end());
  narrow.prefer.clear();
  Result<std::vector<Placement>> placed = Place(narrow, now_us);
  if (!placed.ok()) return std::nullopt;
  if (std::none_of(placed->begin(), placed->end(), [](const Placement& one) { return one.final; })) return *placed;
  for (const Placement& one : *placed) Close(one.ticket);
  return std::nullopt;
}

Result<std::vector<Placement>> GlobalScheduler::Place(const PlaceRequest& request, std::int64_t now_us) {
  if (std::optional<std::vector<Placement>> preferred = PlacePreferred(request, now_us)) return std::move(*preferred);
  Expire(now_us);
  ++counts_.requests;
  std::vector<Placement> placements;
  if (request.count <= 0) return placements;
  ++searches_;
  Shape& shape = ShapeOf(request);

  // Who refused is left out, unless that is everybody.
  std::vector<std::uint32_t> excluded;
  for (const NodeId id : request.refused) {
    const auto it = by_id_.find(id);
    if (it != by_id_.end() && Able(shape.able, it->second)) excluded.push_back(it->second);
  }
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  bool final = request.bounces >= kMostBounces;

  std::vector<Candidate> candidates;
  if (request.affinity != kNoNode || !request.node.empty()) {
    const auto it = by_id_.find(request.affinity);
    const bool able = it != by_id_.end() && Able(shape.able, it->second);
    if (able && (!request.soft_affinity || !Contains(excluded, it->second))) {
      if (Contains(excluded, it->second)) final = true;  // nobody else may have it
      candidates.push_back(Look(it->second, request, shape));
    } else if (!request.soft_affinity) {
      return Infeasible(request);
    }
  }
  if (candidates.empty()) {
    if (shape.able.empty()) return Infeasible(request);
    if (excluded.size() == shape.able.size()) {
      excluded.clear();
      final = true;
    }
    if (request.spread == Spread::kYes) {
      candidates = SpreadOut(request, &shape, excluded);
    } else {
      candidates = Candidates(request, &shape, excluded);
      Share(request, &candidates);
    }
  } else {
    Share(request, &candidates);
  }

  for (const Candidate& candidate : candidates) {
    if (candidate.given == 0) continue;
    counts_.tasks += static_cast<std::uint64_t>(candidate.given);
    placements.push_back({nodes_[candidate.node].id, candidate.given, Open(candidate, request, shape, now_us),
                          candidate.wait_us, final});
  }
  return placements;
}

std::vector<GlobalScheduler::Candidate> GlobalScheduler::Candidates(const PlaceRequest& request, Shape* shape,
                                                                    const std::vector<std::uint32_t>& excluded) {
  std::vector<Candidate> found;
  std::int64_t room = 0;
  for (const std::uint32_t place : excluded) nodes_[place].looked = searches_;
  const auto look = [&](std::uint32_t place) {
    if (nodes_[place].looked == searches_) return;
    nodes_[place].looked = searches_;
    found.push_back(Look(place, request, *shape));
    room += found.back().slots;
  };
  const auto look_at = [&](NodeId id) {
    const auto it = by_id_.find(id);
    if (it != by_id_.end() && Able(shape->able, it->second)) look(it->second);
  };
  look_at(request.from);
  for (const TaskInput& input : request.inputs) {
    const std::size_t many = std::min(input.holders.size(), kMostHolders);
    for (std::size_t i = 0; i < many; ++i) look_at(input.holders[i]);
  }
  const std::size_t able = shape->able.size();
  std::size_t want = std::min(able, options_.sample);
  std::size_t drawn = 0;
  while (drawn < want) {
    if (want * 2 >= able) {
      for (const std::uint32_t place : shape->able) look(place);
      break;
    }
    for (; drawn < want; ++drawn) look(shape->able[Random() % able]);
    if (room < request.count && want < kMostLooks) want = std::min({able, want * 2, kMostLooks});
  }
  return found;
}

GlobalScheduler::Candidate GlobalScheduler::Look(std::uint32_t place, const PlaceRequest& request, const Shape& shape) {
  ++counts_.looks;
  const Node& node = nodes_[place];
  Candidate out;
  out.node = place;
  const double run_us = RunUs(node, request.function);
  double slots = static_cast<double>(request.count);
  double wait = 0;
  for (const auto& [number, amount] : shape.need) {
    if (amount <= 0) continue;
    const double has = std::max(At(node.has, number), 1.0);
    const double available = std::max(At(node.available, number), 0.0);
    const double sent = At(node.sent_units, number);
    // What is free goes first to those who wait already, be it that leases of others idle there at the moment.
    const double backlog = At(node.backlog, number);
    const double waits = backlog / std::max(run_us, 1.0);
    slots = std::min(slots, std::floor(std::max(available - sent - waits, 0.0) / amount));
    // Of what was sent, what exceeded the free part queues.
    const double queued = sent > available ? (sent - available) / sent * At(node.sent_work, number) : 0;
    wait = std::max(wait, (backlog + queued + amount * run_us) / has);
    out.step_us = std::max(out.step_us, amount * run_us / has);
  }
  out.slots = static_cast<std::int64_t>(slots);
  double missing = 0;
  for (const TaskInput& input : request.inputs) {
    if (!Contains(input.holders, node.id)) missing += static_cast<double>(input.bytes);
  }
  if (missing > 0) {
    out.fetch_us = missing / node.bytes_per_us.Or(bytes_per_us_.Or(options_.guess_bytes_per_us));
  }
  // A task that does not start at once queues behind those that do.
  out.first_wait = wait;
  out.wait_us = out.slots > 0 ? 0 : wait;
  out.cost_us = out.fetch_us + out.wait_us;
  return out;
}

void GlobalScheduler::Share(const PlaceRequest& request, std::vector<Candidate>* candidates) {
  std::int64_t left = request.count;
  std::uint32_t turns = 0;
  const auto dearer = [&](std::uint32_t a, std::uint32_t b) {
    const Candidate& one = (*candidates)[a];
    const Candidate& two = (*candidates)[b];
    if (one.cost_us != two.cost_us) return one.cost_us > two.cost_us;
    if (one.turn != two.turn) return one.turn > two.turn;
    return a > b;
  };
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, decltype(dearer)> line(dearer);
  for (std::uint32_t i = 0; i < candidates->size(); ++i) {
    // Of equals the one with most room: it is the least likely to have filled up since.
    (*candidates)[i].turn = std::numeric_limits<std::uint32_t>::max() / 2 -
                            static_cast<std::uint32_t>(std::min<std::int64_t>((*candidates)[i].slots, 1'000'000));
    line.push(i);
  }
  const std::int64_t chunk = std::max<std::int64_t>(1, left / static_cast<std::int64_t>(8 * candidates->size()));
  while (left > 0) {
    const std::uint32_t index = line.top();
    line.pop();
    Candidate& one = (*candidates)[index];
    std::int64_t give = 0;
    if (one.slots > 0) {
      // Half of what is free, then the next one's turn: the other half is for the node's own tasks.
      give = std::min(left, (one.slots + 1) / 2);
      one.slots -= give;
      one.turn = std::numeric_limits<std::uint32_t>::max() / 2 + ++turns;
      if (one.slots == 0) one.cost_us = one.fetch_us + one.first_wait;
    } else {
      give = std::min(left, chunk);
      one.wait_us = one.first_wait + static_cast<double>(give - 1) * one.step_us;
      one.first_wait += static_cast<double>(give) * one.step_us;
      one.cost_us = one.fetch_us + one.first_wait;
    }
    one.given += give;
    left -= give;
    line.push(index);
  }
}

std::vector<GlobalScheduler::Candidate> GlobalScheduler::SpreadOut(const PlaceRequest& request, Shape* shape,
                                                                   const std::vector<std::uint32_t>& excluded) {
  std::vector<Candidate> found;
  const std::size_t able = shape->able.size();
  const std::size_t rest = able - excluded.size();
  const auto many = static_cast<std::size_t>(std::min<std::int64_t>(request.count, static_cast<std::int64_t>(rest)));
  for (const std::uint32_t place : excluded) nodes_[place].looked = searches_;
  // First round those with room, as far as a few looks find them; second round whoever's turn it is.
  const std::size_t looks = std::min(able, 4 * many + options_.sample);
  for (const bool any : {false, true}) {
    const std::size_t most = any ? able : looks;
    for (std::size_t i = 0; i < most && found.size() < many; ++i) {
      const std::uint32_t place = shape->able[shape->next];
      shape->next = (shape->next + 1) % able;
      if (nodes_[place].looked == searches_) continue;
      Candidate one = Look(place, request, *shape);
      if (one.slots == 0 && !any) continue;
      nodes_[place].looked = searches_;
      found.push_back(one);
    }
  }
  const auto size = static_cast<std::int64_t>(found.size());
  for (std::int64_t i = 0; i < size; ++i) {
    Candidate& one = found[static_cast<std::size_t>(i)];
    one.given = request.count / size + (i < request.count % size ? 1 : 0);
    const std::int64_t queue = one.given - one.slots;
    one.wait_us = queue > 0 ? one.first_wait + static_cast<double>(queue - 1) * one.step_us : 0;
  }
  return found;
}

GlobalScheduler::Shape& GlobalScheduler::ShapeOf(const PlaceRequest& request) {
  Shape& shape = shapes_[{request.need, request.labels}];
  if (shape.version == version_) return shape;
  if (shape.version == 0) shape.need = Numbered(request.need);
  shape.version = version_;
  shape.able.clear();
  for (std::uint32_t place = 0; place < nodes_.size(); ++place) {
    const Node& node = nodes_[place];
    if (node.lives && !node.draining && node.total.Covers(request.need) && Matches(node.labels, request.labels)) {
      shape.able.push_back(place);
    }
  }
  shape.next = shape.able.empty() ? 0 : Random() % shape.able.size();
  return shape;
}

double GlobalScheduler::RunUs(const Node& node, ClassId function) const {
  for (const ClassLoad& load : node.classes) {
    if (load.id == function && load.mean_run_us > 0) return load.mean_run_us;
  }
  const auto it = run_us_.find(function);
  return it == run_us_.end() ? options_.guess_run_us : it->second.Or(options_.guess_run_us);
}

std::optional<double> GlobalScheduler::WaitUs(NodeId id, ClassId function, const Resources& need) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return std::nullopt;
  PlaceRequest request;
  request.function = function;
  request.need = need;
  return Look(it->second, request, ShapeOf(request)).wait_us;
}

double GlobalScheduler::Charged(NodeId id, const std::string& resource) const {
  const auto it = by_id_.find(id);
  const auto number = numbers_.find(resource);
  if (it == by_id_.end() || number == numbers_.end()) return 0;
  return At(nodes_[it->second].sent_units, number->second);
}

// ---- tickets ----

std::uint64_t GlobalScheduler::Open(const Candidate& candidate, const PlaceRequest& request, const Shape& shape,
                                    std::int64_t now_us) {
  const std::uint64_t id = (static_cast<std::uint64_t>(replica_) << 48) | ++last_ticket_;
  Node& node = nodes_[candidate.node];
  Ticket ticket{candidate.node, static_cast<double>(candidate.given), RunUs(node, request.function), &shape.need};
  for (const auto& [number, amount] : shape.need) {
    AddAt(&node.sent_units, number, amount * ticket.count);
    AddAt(&node.sent_work, number, amount * ticket.count * ticket.run_us);
  }
  ++node.open;
  tickets_.emplace(id, ticket);
  const double lasts = std::min(candidate.wait_us + candidate.fetch_us + ticket.run_us, 1.0 * kTicketUs);
  expiry_.emplace(now_us + std::min(kLeastTicketUs + static_cast<std::int64_t>(lasts), kTicketUs), id);
  return id;
}

void GlobalScheduler::Close(std::uint64_t id) {
  const auto it = tickets_.find(id);
  if (it == tickets_.end()) return;
  const Ticket& ticket = it->second;
  Node& node = nodes_[ticket.node];
  for (const auto& [number, amount] : *ticket.need) {
    AddAt(&node.sent_units, number, -amount * ticket.count);
    AddAt(&node.sent_work, number, -amount * ticket.count * ticket.run_us);
  }
  if (--node.open == 0) {  // sums of fractions may not come back to zero by themselves
    node.sent_units.clear();
    node.sent_work.clear();
  }
  tickets_.erase(it);
}

void GlobalScheduler::DropTickets(std::uint32_t place) {
  std::erase_if(tickets_, [&](const auto& entry) { return entry.second.node == place; });
  Node& node = nodes_[place];
  node.open = 0;
  node.sent_units.clear();
  node.sent_work.clear();
}

void GlobalScheduler::Expire(std::int64_t now_us) {
  for (; !expiry_.empty() && expiry_.top().first <= now_us; expiry_.pop()) {
    if (tickets_.contains(expiry_.top().second)) ++counts_.expired;
    Close(expiry_.top().second);
  }
}

// ---- small things ----

std::uint32_t GlobalScheduler::Number(const std::string& resource) {
  return numbers_.try_emplace(resource, static_cast<std::uint32_t>(numbers_.size())).first->second;
}

GlobalScheduler::Amounts GlobalScheduler::Numbered(const Resources& resources) {
  Amounts out;
  for (const auto& [name, amount] : resources.amounts()) out.emplace_back(Number(name), static_cast<double>(amount));
  return out;
}

std::uint64_t GlobalScheduler::Random() {
  random_ += 0x9e3779b97f4a7c15ULL;
  return Mix(random_);
}

Status GlobalScheduler::Infeasible(const PlaceRequest& request) const {
  std::size_t draining = 0;
  std::size_t labelled = 0;
  Resources most;
  std::set<std::string> labels;
  for (const auto& [id, place] : by_id_) {
    const Node& node = nodes_[place];
    if (node.draining) {
      ++draining;
      continue;
    }
    for (const auto& [key, value] : node.labels) labels.insert(Cat(key, "=", value));
    if (!Matches(node.labels, request.labels)) continue;
    ++labelled;
    for (const auto& [name, amount] : node.total.amounts()) most.Set(name, std::max(most.Get(name), amount));
  }
  const bool one_node = !request.node.empty() || request.affinity != kNoNode;
  const std::string node = request.node.empty() ? Cat(request.affinity) : request.node;
  std::string text = Cat("no node can hold a task that asks for ", ToString(request.need));
  for (std::size_t i = 0; i < request.labels.size(); ++i) {
    text += Cat(i == 0 ? " where " : " and ", ToString(request.labels[i]));
  }
  if (one_node) text += Cat(" on node ", node, " only");
  text += Cat(": ", by_id_.size(), " nodes live");
  if (draining > 0) text += Cat(", ", draining, " of them drain");
  if (!request.labels.empty()) {
    text += Cat(", ", labelled, " match the labels (there are ");
    constexpr std::size_t kShown = 8;
    std::size_t shown = 0;
    for (const std::string& label : labels) {
      if (shown < kShown) text += Cat(shown == 0 ? "" : ", ", label);
      ++shown;
    }
    text += shown == 0 ? "none)" : shown > kShown ? Cat(" and ", shown - kShown, " more)") : ")";
  }
  if (one_node) {
    const auto it = by_id_.find(request.affinity);
    text += it == by_id_.end() ? Cat("; node ", node, " is not among them")
                               : Cat("; node ", node, " has ", ToString(nodes_[it->second].total));
  } else {
    text += Cat("; the most that one has is ", ToString(most));
  }
  text += "; ask for less or start a node that has it";
  return {Code::kInfeasible, std::move(text)};
}

}  // namespace manta::rules
