#include "rules/lease_queue.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "types/strategy.h"
#include "types/text.h"

namespace manta::rules {
namespace {

const std::string kCpu = "CPU";
const std::string kGpu = "GPU";

// The node's own, or a bundle's.
bool Is(const std::string& name, const std::string& base) {
  return name.starts_with(base) && (name.size() == base.size() || name[base.size()] == kBundleMark);
}

Resources Only(const Resources& resources, bool gpus) {
  Resources out;
  for (const auto& [name, amount] : resources.amounts()) {
    const bool gpu = Is(name, kGpu) || name.starts_with(kGpu + kQuotaMark);
    if (gpu == gpus) out.Set(name, amount);
  }
  return out;
}

// What is the node's own, or a job's.
Resources Quota(const Resources& resources, bool quota) {
  Resources out;
  for (const auto& [name, amount] : resources.amounts()) {
    if (IsQuota(name) == quota) out.Set(name, amount);
  }
  return out;
}

}  // namespace

// ---- Pool ----

std::optional<std::vector<std::uint32_t>> LeaseQueue::Pool::PickGpus(const Resources& need) const {
  std::vector<std::uint32_t> picked;
  std::int64_t amount = 0;
  // Of a device that is counted under several names (a bundle's and its group's) the least counts.
  std::vector<std::int64_t> gpus;
  for (const auto& [name, asked] : need.amounts()) {
    if (!Is(name, kGpu)) continue;
    const auto it = devices.find(name);
    if (it == devices.end()) return std::nullopt;
    if (amount == 0) gpus = it->second;
    gpus.resize(std::min(gpus.size(), it->second.size()));  // what is not counted is not there
    for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i] = std::min(gpus[i], it->second[i]);
    amount = asked;
  }
  if (amount == 0) return picked;
  if (amount >= kUnit) {
    const auto count = static_cast<std::size_t>(amount / kUnit);
    for (std::uint32_t i = 0; i < gpus.size() && picked.size() < count; ++i) {
      if (gpus[i] == kUnit) picked.push_back(i);
    }
    if (picked.size() < count) return std::nullopt;
    return picked;
  }
  // A fraction goes first to a device that is shared already, so that whole ones stay whole.
  for (const bool whole : {false, true}) {
    for (std::uint32_t i = 0; i < gpus.size(); ++i) {
      if ((gpus[i] == kUnit) == whole && gpus[i] >= amount) return std::vector<std::uint32_t>{i};
    }
  }
  return std::nullopt;
}

bool LeaseQueue::Pool::Fits(const Resources& need) const { return amounts.Covers(need) && PickGpus(need).has_value(); }

std::vector<std::string> LeaseQueue::Pool::Lacks(const Resources& need) const {
  std::vector<std::string> lacks;
  for (const auto& [name, amount] : need.amounts()) {
    if (Is(name, kGpu) ? !PickGpus(need).has_value() : amount > amounts.Get(name)) lacks.push_back(name);
  }
  return lacks;
}

void LeaseQueue::Pool::TakeFitting(const Resources& need) { Take(need, *PickGpus(need)); }

void LeaseQueue::Pool::HoldBack(const Resources& need) {
  const std::vector<std::string> lacks = Lacks(need);
  if (std::any_of(lacks.begin(), lacks.end(), IsQuota)) {  // its own job's business
    for (const auto& [name, amount] : need.amounts()) {
      if (IsQuota(name)) amounts.Set(name, 0);
    }
    return;
  }
  const bool lacks_more_than_cpus =
      std::any_of(lacks.begin(), lacks.end(), [](const std::string& name) { return !Is(name, kCpu); });
  Resources keep;
  for (const auto& [name, amount] : need.amounts()) {
    if (std::find(lacks.begin(), lacks.end(), name) != lacks.end()) {
      if (Is(name, kGpu)) devices[name].assign(devices[name].size(), 0);
      amounts.Set(name, 0);
    } else if (!Is(name, kCpu) || !lacks_more_than_cpus) {
      keep.Set(name, amount);
    }
  }
  TakeFitting(keep);
}

void LeaseQueue::Pool::Change(const Resources& held, const std::vector<std::uint32_t>& gpus, int sign) {
  if (sign > 0) {
    amounts.Add(held);
  } else {
    amounts.Subtract(held);
  }
  if (gpus.empty()) return;
  for (const auto& [name, amount] : held.amounts()) {
    if (!Is(name, kGpu)) continue;
    const std::int64_t share = amount / static_cast<std::int64_t>(gpus.size());
    std::vector<std::int64_t>& of = devices[name];
    for (const std::uint32_t gpu : gpus) {
      if (gpu >= of.size()) of.resize(gpu + 1);
      of[gpu] += sign * share;
    }
  }
}

// ---- events ----

LeaseQueue::LeaseQueue(std::string node, Resources total) : node_(std::move(node)), total_(std::move(total)) {
  const std::int64_t gpus = total_.Get(kGpu) / kUnit;
  total_.Set(kGpu, gpus * kUnit);
  free_.amounts = total_;
  if (gpus > 0) free_.devices[kGpu] = std::vector<std::int64_t>(static_cast<std::size_t>(gpus), kUnit);
  loose_ = free_;
  all_ = total_;
}

void LeaseQueue::AddPool(const Resources& pool, const std::vector<std::uint32_t>& gpus) {
  all_.Add(pool);
  free_.Give(pool, gpus);
  loose_.Give(pool, gpus);
}

bool LeaseQueue::RemovePool(const Resources& pool, const std::vector<std::uint32_t>& gpus) {
  if (!free_.amounts.Covers(pool)) return false;
  all_.Subtract(pool);
  free_.Take(pool, gpus);
  loose_.Take(pool, gpus);
  for (const auto& [name, amount] : pool.amounts()) {
    if (all_.Get(name) != 0 || !Is(name, kGpu)) continue;
    free_.devices.erase(name);
    loose_.devices.erase(name);
  }
  return true;
}

Status LeaseQueue::Check(const Resources& need, const std::string& who) const {
  for (const auto& [name, amount] : need.amounts()) {
    if (amount < 0) {
      return {Code::kInvalid, Cat(who, " asks for ", ToString(need), "; amounts must not be negative")};
    }
  }
  const auto gpus = std::find_if(need.amounts().begin(), need.amounts().end(),
                                 [](const auto& entry) { return Is(entry.first, kGpu); });
  if (gpus != need.amounts().end() && gpus->second > kUnit && gpus->second % kUnit != 0) {
    return {Code::kInvalid, Cat(who, " asks for ", ToString(need),
                                "; more than one GPU must be a whole number, a fraction is a share of one device")};
  }
  if (!all_.Covers(Quota(need, false))) {
    return {Code::kInfeasible, Cat(who, " asks for ", ToString(need), ", node ", node_, " has ", ToString(total_),
                                   " in all; ask for less or start Manta with more (Config::cpus, Config::resources)")};
  }
  return {};
}

// ---- quotas of jobs ----

void LeaseQueue::SetQuota(const Resources& total, const Resources& here) {
  elsewhere_.Add(total);
  elsewhere_.Subtract(here);
  AddPool(here, {});
}

void LeaseQueue::AddShare(const Resources& more, std::int64_t now_us, LeaseActions* actions) {
  elsewhere_.Subtract(more);
  AddPool(more, {});
  Settle(now_us, actions);
}

bool LeaseQueue::RemoveShare(const Resources& less) {
  if (!RemovePool(less, {})) return false;
  elsewhere_.Add(less);
  return true;
}

void LeaseQueue::Withdraw(std::uint64_t number) {
  const auto it = leases_.find(number);
  if (it == leases_.end()) return;
  const Resources held = it->second.held;
  Detach(it->second);
  granted_.erase(it->second.want.key);
  leases_.erase(it);
  RemoveShare(held);
}

void LeaseQueue::DropQuota(const Resources& total) {
  for (const auto& [name, amount] : total.amounts()) elsewhere_.Set(name, 0);
}

Resources LeaseQueue::LacksQuota(const Id& job, const Resources& free, bool patient) const {
  const std::string mark = kQuotaMark + ToHex(job);
  const auto lacks = [&](const Resources& need) {
    Resources missing;
    for (const auto& [name, amount] : need.amounts()) {
      if (name.ends_with(mark)) missing.Set(name, std::max<std::int64_t>(amount - free_.amounts.Get(name), 0));
    }
    if (missing.empty()) return missing;
    const Resources own = Quota(need, false);
    if (own.empty() || !(patient || free.Covers(own))) return Resources();
    return missing;
  };
  for (const std::uint64_t number : resuming_) {
    const Resources missing = lacks(Only(leases_.at(number).want.need, /*gpus=*/false));
    if (!missing.empty()) return missing;
  }
  for (const Line* line : InOrder()) {
    const Resources missing = lacks(line->want.need);
    if (!missing.empty()) return missing;
  }
  return {};
}

bool LeaseQueue::WaitsForQuota(const Id& job) const {
  const std::string mark = kQuotaMark + ToHex(job);
  const auto names = [&](const Resources& need) {
    bool quota = false;
    bool more = false;
    for (const auto& [name, amount] : need.amounts()) {
      quota |= name.ends_with(mark);
      more |= !IsQuota(name);
    }
    return quota && more;
  };
  return std::any_of(resuming_.begin(), resuming_.end(),
                     [&](std::uint64_t number) { return names(leases_.at(number).want.need); }) ||
         std::any_of(lines_.begin(), lines_.end(), [&](const auto& entry) { return names(entry.second.want.need); });
}

bool LeaseQueue::FitsLoose(const Resources& need) const {
  if (elsewhere_.empty()) return loose_.Fits(need);
  for (const auto& [name, amount] : need.amounts()) {
    if (IsQuota(name) && amount > loose_.amounts.Get(name) + elsewhere_.Get(name)) return false;
  }
  return loose_.Fits(Quota(need, false));
}

Status LeaseQueue::Add(const LeaseWant& want, std::int64_t now_us, LeaseActions* actions) {
  if (waiting_.contains(want.key) || granted_.contains(want.key)) {
    return {Code::kInvalid, Cat("request ", want.key.request, " of process ", want.key.owner,
                                " is known already; give each request a number of its own")};
  }
  if (Status status = Check(want.need); !status.ok()) return status;
  if (want.need.empty()) {  // in nobody's way
    Award(want, now_us, actions);
    Settle(now_us, actions);  // its queue is better served now, which changes the order
    return {};
  }
  const auto line =
      lines_
          .try_emplace({want.priority, want.actor, want.key.owner, want.queue, want.need, want.stalled}, Line{want, {}})
          .first;
  line->second.requests.emplace(++arrivals_, want.key.request);
  waiting_.emplace(want.key, Spot{line, arrivals_});
  Settle(now_us, actions);
  return {};
}

bool LeaseQueue::Cancel(const LeaseKey& key, std::int64_t now_us, LeaseActions* actions) {
  const auto it = waiting_.find(key);
  if (it == waiting_.end()) return false;
  Forget(it);
  Settle(now_us, actions);  // it may have held something back
  return true;
}

bool LeaseQueue::Return(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions) {
  return EndAndSettle(lease, now_us, actions);
}

bool LeaseQueue::Lost(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions) {
  return EndAndSettle(lease, now_us, actions);
}

bool LeaseQueue::EndAndSettle(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return false;
  Detach(it->second);
  std::erase(resuming_, lease);
  granted_.erase(it->second.want.key);
  if (it->second.revoked) GoToTheEnd(QueueOf(it->second.want));
  leases_.erase(it);
  Settle(now_us, actions);
  return true;
}

void LeaseQueue::OwnerDied(ProcessId owner, std::int64_t now_us, LeaseActions* actions) {
  auto it = waiting_.lower_bound(LeaseKey{owner, 0});
  while (it != waiting_.end() && it->first.owner == owner) Forget(it++);
  Settle(now_us, actions);
}

bool LeaseQueue::Block(std::uint64_t lease, std::int64_t now_us, LeaseActions* actions) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return false;
  if (it->second.blocked) return true;
  Detach(it->second);
  it->second.blocked = true;
  it->second.held = Only(it->second.held, /*gpus=*/true);
  Attach(it->second);
  Settle(now_us, actions);
  return true;
}

bool LeaseQueue::Unblock(std::uint64_t lease, bool late, std::int64_t now_us, LeaseActions* actions) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return false;
  if (!it->second.blocked) {
    actions->emplace_back(Resume{lease});
    return true;
  }
  it->second.late |= late;
  if (std::find(resuming_.begin(), resuming_.end(), lease) == resuming_.end()) resuming_.push_back(lease);
  Settle(now_us, actions);
  return true;
}

// ---- who is served ----

LeaseQueue::Served LeaseQueue::ServedBy(const LeaseWant& want) const {
  if (want.actor) return {};
  const auto it = served_.find(QueueOf(want));
  return it == served_.end() ? Served{} : it->second;
}

void LeaseQueue::Detach(const Lease& lease) {
  free_.Give(lease.held, lease.gpus);
  if (lease.want.actor || lease.blocked) {
    loose_.Give(lease.held, lease.gpus);
    return;
  }
  const auto it = served_.find(QueueOf(lease.want));
  it->second.leaving -= lease.revoked ? 1 : 0;
  if (--it->second.running == 0) served_.erase(it);
}

void LeaseQueue::Attach(const Lease& lease) {
  free_.Take(lease.held, lease.gpus);
  if (lease.want.actor || lease.blocked) {
    loose_.Take(lease.held, lease.gpus);
    return;
  }
  Served& served = served_[QueueOf(lease.want)];
  ++served.running;
  served.leaving += lease.revoked ? 1 : 0;
}

void LeaseQueue::Forget(std::map<LeaseKey, Spot>::iterator it) {
  const auto [line, arrival] = it->second;
  waiting_.erase(it);
  line->second.requests.erase(arrival);
  if (line->second.requests.empty()) lines_.erase(line);
}

void LeaseQueue::GoToTheEnd(const QueueName& queue) {
  for (auto& [name, line] : lines_) {
    if (line.want.actor || QueueOf(line.want) != queue) continue;
    std::map<std::uint64_t, std::uint64_t> moved;
    for (const auto& [arrival, request] : line.requests) {
      moved.emplace_hint(moved.end(), ++arrivals_, request);
      waiting_.at({line.want.key.owner, request}).arrival = arrivals_;
    }
    line.requests = std::move(moved);
  }
}

void LeaseQueue::Award(const LeaseWant& want, std::int64_t now_us, LeaseActions* actions) {
  Lease lease{.want = want, .granted_us = now_us, .held = want.need, .gpus = *free_.PickGpus(want.need)};
  const std::uint64_t number = ++last_lease_;
  Attach(lease);
  granted_.emplace(want.key, number);
  actions->emplace_back(Grant{want.key, number, lease.gpus});
  leases_.emplace(number, std::move(lease));
}

std::vector<const LeaseQueue::Line*> LeaseQueue::InOrder() const {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::uint64_t, const Line*>> keyed;
  keyed.reserve(lines_.size());
  for (const auto& [name, line] : lines_) {
    keyed.emplace_back(-std::int64_t{line.want.priority}, HelpedBy(line.want), line.requests.begin()->first, &line);
  }
  std::sort(keyed.begin(), keyed.end());  // no two have the same arrival
  std::vector<const Line*> out;
  out.reserve(keyed.size());
  for (const auto& entry : keyed) out.push_back(std::get<3>(entry));
  return out;
}

void LeaseQueue::Settle(std::int64_t now_us, LeaseActions* actions) {
  // Whoever is served changes the order, and what can be had at all; so one at a time.
  for (bool again = true; again && !(resuming_.empty() && lines_.empty());) {
    Pool available = free_;
    again = ResumeWoken(&available, actions);
    if (available.amounts.empty() || lines_.empty()) continue;
    for (const Line* line : InOrder()) {
      LeaseWant want = line->want;
      if (available.Fits(want.need)) {
        want.key.request = line->requests.begin()->second;
        Forget(waiting_.find(want.key));
        Award(want, now_us, actions);
        again = true;
        break;
      }
      if (FitsLoose(want.need)) available.HoldBack(want.need);
      if (available.amounts.empty()) break;
    }
  }
}

bool LeaseQueue::ResumeWoken(Pool* available, LeaseActions* actions) {
  bool any = false;
  std::vector<std::uint64_t> still;
  for (const std::uint64_t number : resuming_) {
    Lease& lease = leases_.at(number);
    Resources back = Only(lease.want.need, /*gpus=*/false);
    if (!available->Fits(back)) {
      if (!lease.late && FitsLoose(back)) {
        available->HoldBack(back);
        still.push_back(number);
        continue;
      }
      // Actors have it, for as long as they like, or its time is up: see the top of the header.
      const Resources asked = back;
      for (const auto& [name, amount] : asked.amounts()) {
        back.Set(name, std::min(amount, available->amounts.Get(name)));
      }
    }
    available->Take(back, {});
    Detach(lease);
    lease.blocked = false;
    lease.late = false;
    lease.held.Add(back);
    Attach(lease);
    actions->emplace_back(Resume{number});
    any = true;
  }
  resuming_ = std::move(still);
  return any;
}

// ---- who must go ----

void LeaseQueue::Tick(std::int64_t now_us, const std::function<bool(std::uint64_t lease)>& idle,
                      LeaseActions* actions) {
  for (const std::uint64_t number : MakePlan(now_us, idle).revoke) {
    Lease& lease = leases_.at(number);
    Detach(lease);
    lease.revoked = true;
    Attach(lease);
    actions->emplace_back(Revoke{number});
  }
}

std::int64_t LeaseQueue::NextTick(std::int64_t now_us) const {
  const Plan plan = MakePlan(now_us, [](std::uint64_t) { return false; });
  return plan.revoke.empty() ? plan.next_us : now_us;
}

LeaseQueue::Plan LeaseQueue::MakePlan(std::int64_t now_us, const IsIdle& idle) const {
  Plan plan;
  if (resuming_.empty() && lines_.empty()) return plan;
  Pool coming = free_;
  std::vector<const Lease*> late;  // asked to go, and in the middle of something
  for (const auto& [number, lease] : leases_) {
    if (lease.blocked || lease.want.actor) continue;
    const bool busy = !idle(number);
    if (!lease.revoked) {
      plan.candidates.push_back({busy, number, &lease});
    } else if (busy) {
      late.push_back(&lease);
    } else {
      coming.Give(lease.held, lease.gpus);
    }
  }
  std::sort(plan.candidates.begin(), plan.candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.busy, a.lease->want.priority, a.lease->granted_us, a.number) <
           std::tie(b.busy, b.lease->want.priority, b.lease->granted_us, b.number);
  });
  std::set<std::string> contested;  // what somebody lacks and could not take: those behind him would take it for him
  const auto cover = [&](const Needy& needy) {
    // One that has become idle meanwhile is sooner than one that will end some day.
    if (!coming.Fits(needy.need) && !late.empty() && !Cover(needy, now_us, true, &coming, &plan)) {
      for (; !late.empty() && !coming.Fits(needy.need); late.pop_back()) {
        coming.Give(late.back()->held, late.back()->gpus);
      }
    }
    if (!coming.Fits(needy.need)) {
      if (!FitsLoose(needy.need)) return false;
      const std::vector<std::string> lacks = coming.Lacks(needy.need);
      const bool behind =
          std::any_of(lacks.begin(), lacks.end(), [&](const std::string& name) { return contested.contains(name); });
      if (behind || !Cover(needy, now_us, false, &coming, &plan)) {
        coming.HoldBack(needy.need);
        std::copy_if(lacks.begin(), lacks.end(), std::inserter(contested, contested.end()),
                     [&](const std::string& name) { return all_.Get(name) != 0; });
        return false;
      }
    }
    coming.TakeFitting(needy.need);
    return true;
  };
  for (const std::uint64_t number : resuming_) {
    const LeaseWant& want = leases_.at(number).want;
    cover(Needy{Only(want.need, /*gpus=*/false), &want, true});
  }
  // As Settle will: whoever is covered is better served, and its line comes later.
  using Entry = std::tuple<std::int64_t, std::int64_t, std::uint64_t, const Line*>;
  std::set<Entry> entries;
  for (const auto& [name, line] : lines_) {
    entries.emplace(-std::int64_t{line.want.priority}, HelpedBy(line.want), line.requests.begin()->first, &line);
  }
  while (!entries.empty() && contested.size() < all_.amounts().size()) {
    auto [rank, running, arrival, line] = entries.extract(entries.begin()).value();
    if (!cover(Needy{line->want.need, &line->want, false})) continue;  // nor will those behind it
    if (!line->want.actor) {
      ++plan.gaining[QueueOf(line->want)];
      ++running;
    }
    const auto next = line->requests.upper_bound(arrival);
    if (next != line->requests.end()) entries.emplace(rank, running, next->first, line);
  }
  return plan;
}

bool LeaseQueue::Cover(const Needy& needy, std::int64_t now_us, bool only_idle, Pool* coming, Plan* plan) const {
  const std::vector<std::string> lacks = coming->Lacks(needy.need);
  const auto helps = [](const Lease& lease, const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), [&](const auto& name) { return lease.held.Get(name) > 0; });
  };
  Pool trial = *coming;
  std::vector<Candidate*> picked;  // and counted in plan->losing
  std::vector<std::string> still = lacks;
  bool enough = trial.Fits(needy.need);
  for (auto it = plan->candidates.begin(); !enough && it != plan->candidates.end(); ++it) {
    if (it->busy && only_idle) break;
    const Lease& lease = *it->lease;
    if (it->taken || !MayTake(needy, lease, !it->busy, now_us, *plan) || !helps(lease, still)) continue;
    trial.Give(lease.held, lease.gpus);
    still = trial.Lacks(needy.need);
    enough = trial.Fits(needy.need);
    ++plan->losing[QueueOf(lease.want)];
    picked.push_back(&*it);
  }
  if (!enough) {
    for (const Candidate* candidate : picked) --plan->losing[QueueOf(candidate->lease->want)];
    for (const Candidate& candidate : plan->candidates) {
      const Lease& lease = *candidate.lease;
      // Were it idle, could it be taken?
      if (candidate.taken || !MayTake(needy, lease, /*idle=*/true, now_us, *plan) || !helps(lease, lacks)) continue;
      plan->next_us = std::min(plan->next_us, now_us + kIdlePollUs);
      const std::int64_t matures_us = lease.granted_us + kQuantumUs;
      if (lease.want.priority == needy.want->priority && matures_us > now_us) {
        plan->next_us = std::min(plan->next_us, matures_us);
      }
    }
    return false;
  }
  // What came early may have become needless by a larger one after it. The last one never is.
  for (auto it = picked.rbegin(); it != picked.rend(); ++it) {
    const Lease& lease = *(*it)->lease;
    if (it != picked.rbegin()) {
      Pool without = trial;
      without.Take(lease.held, lease.gpus);
      if (without.Fits(needy.need)) {
        trial = std::move(without);
        --plan->losing[QueueOf(lease.want)];
        continue;
      }
    }
    (*it)->taken = true;
    plan->revoke.push_back((*it)->number);
  }
  *coming = std::move(trial);
  return true;
}

bool LeaseQueue::MayTake(const Needy& needy, const Lease& lease, bool idle, std::int64_t now_us,
                         const Plan& plan) const {
  const bool same_queue = !needy.want->actor && QueueOf(lease.want) == QueueOf(*needy.want);
  if (same_queue && !needy.woken) return false;
  if (idle) return true;
  if (lease.want.priority != needy.want->priority) return lease.want.priority < needy.want->priority;
  if (needy.woken) return true;
  if (now_us - lease.granted_us < kQuantumUs) return false;
  const auto in = [](const std::map<QueueName, std::int64_t>& counts, const LeaseWant& want) {
    const auto it = counts.find(QueueOf(want));
    return it == counts.end() ? 0 : it->second;
  };
  const std::int64_t own = needy.want->actor ? 0 : HelpedBy(*needy.want) + in(plan.gaining, *needy.want);
  const Served other = ServedBy(lease.want);
  return own == 0 || other.running - other.leaving - in(plan.losing, lease.want) >= own + 2;
}

// ---- what is ----

Resources LeaseQueue::in_use() const {
  Resources out = total_;
  out.Subtract(Plain(free_.amounts));
  return out;
}

const LeaseQueue::Lease* LeaseQueue::Find(std::uint64_t lease) const {
  const auto it = leases_.find(lease);
  return it == leases_.end() ? nullptr : &it->second;
}

std::optional<std::uint64_t> LeaseQueue::LeaseOf(const LeaseKey& key) const {
  const auto it = granted_.find(key);
  if (it == granted_.end()) return std::nullopt;
  return it->second;
}

}  // namespace manta::rules
