#include "node/quotas.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace manta::node {
namespace {

// Who lacks more than his quota gets it all the same after this time: without it nobody would return to him what else
// he lacks. Not often, because what he gets so is taken from tasks of his own job that could use it.
constexpr std::int64_t kPatienceUs = 200'000;
constexpr std::int64_t kReportAgainUs = 500'000;  // to a home that could not be reached

// At most one of each: many small ones come sooner than a large one.
Resources PieceOf(const Resources& amounts) {
  Resources out;
  for (const auto& [name, amount] : amounts.amounts()) out.Set(name, std::min(amount, kUnit));
  return out;
}

}  // namespace

Resources EffectiveQuota(const Resources& asked, const Resources& most) {
  Resources out = most;
  for (const auto& [name, amount] : asked.amounts()) {
    out.Set(name, most.Get(name) == 0 ? amount : std::min(amount, most.Get(name)));
  }
  return out;
}

Quotas::~Quotas() {
  *alive_ = false;
  loop_.Cancel(timer_);
}

void Quotas::Join(Cluster& cluster) {
  cluster_ = &cluster;
  NodeLinks& links = cluster.links();
  links.On<wire::QuotaState>(
      [this](NodeNumber from, const wire::QuotaState& message, std::uint64_t) { OnState(from, message); });
  links.On<wire::QuotaShare>(
      [this](NodeNumber from, const wire::QuotaShare& message, std::uint64_t) { OnShare(from, message); });
  links.WhenDown([this](NodeNumber node, const Status&) { LinkDown(node); });
}

// ---- jobs ----

void Quotas::AddHome(const Id& job, const Resources& quota) {
  if (quota.empty() || homes_.contains(job)) return;
  homes_.emplace(job, Home(quota));
  leases_.Limit(job, quota, quota);
}

void Quotas::AddFar(const Id& job, NodeNumber home, const Resources& quota) {
  if (quota.empty() || homes_.contains(job)) return;
  if (const auto it = fars_.find(job); it != fars_.end()) {
    it->second.ended = false;
    return;
  }
  Far& far = fars_[job];
  far.home = home;
  far.quota = quota;
  leases_.Limit(job, quota, {});
}

void Quotas::Remove(const Id& job) {
  if (const auto it = homes_.find(job); it != homes_.end()) {
    for (const auto& [node, asked] : it->second.asked) leases_.CancelReservation(asked.request);
    leases_.Unlimit(job, it->second.book.total());
    homes_.erase(it);
  }
  if (const auto it = fars_.find(job); it != fars_.end()) {
    if (it->second.recalling != 0) leases_.CancelReservation(std::exchange(it->second.recalling, 0));
    it->second.ended = true;
    again_ = true;
  }
}

Status Quotas::Check(const Resources& need, const Resources& quota, const std::string& who) {
  for (const auto& [name, amount] : quota.amounts()) {
    if (need.Get(name) <= amount) continue;
    return {Code::kInfeasible,
            Cat(who, " asks for ", ToString(need), ", but its job may have no more than ", ToString(quota),
                " at a time, all over the cluster; ask for less, or for a larger quota (Config::quota, and for all "
                "jobs `manta start --job-quota`)")};
  }
  return {};
}

Resources Quotas::InUse(const Id& job) const {
  const auto it = homes_.find(job);
  if (it == homes_.end()) return {};
  Resources used = it->second.book.total();
  used.Subtract(leases_.FreeShare(job));
  return used;
}

void Quotas::NodeGone(NodeNumber node) {
  for (auto& [job, home] : homes_) {
    if (const auto it = home.asked.find(node); it != home.asked.end()) {
      leases_.CancelReservation(it->second.request);
      home.asked.erase(it);
    }
    home.recalled.erase(node);
    const Resources back = home.book.NodeGone(node);
    if (!back.empty()) leases_.AddShare(job, back);
  }
  for (auto& [job, far] : fars_) far.ended |= far.home == node;
  again_ = true;
}

void Quotas::LinkDown(NodeNumber node) {
  for (auto& [job, home] : homes_) {
    if (const auto it = home.asked.find(node); it != home.asked.end()) {
      leases_.CancelReservation(it->second.request);
      home.asked.erase(it);
    }
    home.recalled.erase(node);
    home.book.LinkLost(node);
  }
  for (auto& [job, far] : fars_) {
    if (far.home != node) continue;
    // What we said may not have come, nor what it said to us.
    far.recall = {};
    if (far.recalling != 0) leases_.CancelReservation(std::exchange(far.recalling, 0));
    loop_.After(kReportAgainUs, [this, alive = alive_, id = job] {
      if (!*alive) return;
      const auto it = fars_.find(id);
      if (it == fars_.end() || cluster_->Find(it->second.home) == nullptr) return;
      it->second.report = true;
      again_ = true;
    });
  }
}

// ---- the driver's node ----

void Quotas::OnState(NodeNumber from, const wire::QuotaState& message) {
  const auto it = homes_.find(message.job);
  if (it == homes_.end()) return;  // the job has ended, and they hear of that
  Home& home = it->second;
  const Resources back = home.book.Heard(from, message.have, message.lacks, message.seen);
  if (!back.empty()) leases_.AddShare(message.job, back);
  // It may have given back some of what it was asked for: say again what is wanted.
  if (const auto told = home.recalled.find(from); told != home.recalled.end()) told->second = {};
  again_ = true;
}

void Quotas::Serve(const Id& job, Home& home) {
  for (const NodeNumber node : home.book.nodes()) {
    const Resources lacks = home.book.Lacks(node);
    const auto it = home.asked.find(node);
    if (it != home.asked.end() && it->second.need == lacks) continue;
    if (it != home.asked.end()) {
      leases_.CancelReservation(it->second.request);
      home.asked.erase(it);
    }
    if (lacks.empty()) continue;
    const auto done = std::make_shared<bool>(false);
    const Result<std::uint64_t> request = leases_.Reserve(
        OfQuota(lacks, home.book.total(), job),
        [this, job, node, lacks, done](std::uint64_t lease, const std::vector<std::uint32_t>&) {
          *done = true;
          leases_.Withdraw(lease);
          const auto found = homes_.find(job);
          if (found == homes_.end()) return;
          found->second.asked.erase(node);
          const std::uint64_t number = found->second.book.Give(node, lacks);
          again_ = true;
          cluster_->links().Send(node, wire::QuotaShare{job, number, lacks, found->second.recalled[node]});
        });
    if (request.ok() && !*done) home.asked[node] = Asked{request.value(), lacks};
  }
}

void Quotas::Recall(const Id& job, Home& home) {
  for (const NodeNumber node : home.book.nodes()) {
    const Resources recall = home.book.Recall(node);
    Resources& told = home.recalled[node];
    if (recall == told) continue;
    told = recall;
    if (cluster_->Find(node) != nullptr) cluster_->links().Send(node, wire::QuotaShare{job, 0, {}, recall});
  }
}

// ---- other nodes ----

void Quotas::OnShare(NodeNumber from, const wire::QuotaShare& message) {
  const auto it = fars_.find(message.job);
  if (it == fars_.end() || it->second.home != from) {
    // Nobody here wants it any more.
    if (message.number != 0) cluster_->links().Send(from, wire::QuotaState{message.job, {}, {}, message.number});
    return;
  }
  Far& far = it->second;
  if (message.number != 0) {
    far.seen = message.number;
    far.have.Add(message.more);
    far.lacks = {};  // is looked at anew
    far.report = true;
    leases_.AddShare(message.job, message.more);
  }
  far.recall = message.recall;
  if (far.recall.empty() && far.recalling != 0) leases_.CancelReservation(std::exchange(far.recalling, 0));
  if (!far.recall.empty() && far.recalling == 0) GiveBackPiece(message.job);
  again_ = true;
}

void Quotas::GiveBackPiece(const Id& job) {
  Far& far = fars_[job];
  const Resources piece = PieceOf(far.recall);
  const auto done = std::make_shared<bool>(false);
  const Result<std::uint64_t> request = leases_.Reserve(
      OfQuota(piece, far.quota, job), [this, job, piece, done](std::uint64_t lease, const std::vector<std::uint32_t>&) {
        *done = true;
        leases_.Withdraw(lease);
        const auto it = fars_.find(job);
        if (it == fars_.end()) return;
        it->second.recalling = 0;
        it->second.have.Subtract(piece);
        it->second.recall.Subtract(piece);
        it->second.report = true;
        again_ = true;
        // Not from within the queue.
        loop_.After(0, [this, alive = alive_, job] {
          if (!*alive) return;
          const auto found = fars_.find(job);
          if (found == fars_.end() || found->second.recalling != 0 || found->second.recall.empty()) return;
          GiveBackPiece(job);
        });
      });
  if (request.ok() && !*done) far.recalling = request.value();
}

void Quotas::Look(const Id& job, Far& far, bool patient) {
  const Resources free = leases_.FreeShare(job);
  const bool waits = leases_.queue().WaitsForQuota(job);
  if (!free.empty() && (!waits || far.ended) && leases_.RemoveShare(job, free)) {
    far.have.Subtract(free);
    far.report = true;
  }
  const Resources lacks = far.ended ? Resources() : leases_.LacksQuota(job, patient);
  // What it lacked a moment ago it still does, unless it was served or went away.
  if (lacks != far.lacks && !(lacks.empty() && waits && !far.lacks.empty())) {
    far.lacks = lacks;
    far.report = true;
  }
  if (waits) LookLater();
  if (!std::exchange(far.report, false) || cluster_->Find(far.home) == nullptr) return;
  cluster_->links().Send(far.home, wire::QuotaState{job, far.have, far.lacks, far.seen});
}

// ---- both ----

void Quotas::LookLater() {
  if (timer_ != 0) return;
  timer_ = loop_.After(kPatienceUs, [this] {
    timer_ = 0;
    again_ = true;
    patient_ = true;
  });
}

void Quotas::EndRound() {
  if (homes_.empty() && fars_.empty()) return;
  if (cluster_ == nullptr || (!std::exchange(again_, false) && looked_ == leases_.changes())) return;
  looked_ = leases_.changes();
  const bool patient = std::exchange(patient_, false);
  for (auto& [job, home] : homes_) {
    Serve(job, home);
    if (home.book.nodes().empty()) continue;
    home.book.HomeLacks(leases_.LacksQuota(job, patient));
    if (leases_.queue().WaitsForQuota(job)) LookLater();
    Recall(job, home);
  }
  for (auto it = fars_.begin(); it != fars_.end();) {
    Look(it->first, it->second, patient);
    if (it->second.ended && it->second.have.empty()) {
      leases_.Unlimit(it->first, it->second.quota);
      it = fars_.erase(it);
    } else {
      ++it;
    }
  }
  if (again_) loop_.After(0, [] {});
}

}  // namespace manta::node
