#include "rules/chain_master.h"

#include <algorithm>

namespace manta::rules {

ChainMaster::ChainMaster(std::int64_t now_us, ChainConfig config, const ChainTimes& times, const ChainFaults& faults)
    : times_(times), faults_(faults), started_us_(now_us), config_(std::move(config)) {
  for (const MemberId member : config_.members) facts_[member];
  if (config_.joiner != kNoMember) facts_[config_.joiner];
}

void ChainMaster::Receive(std::int64_t now_us, const ChainMessage& message, ChainMasterActions* actions) {
  if (const auto* renew = std::get_if<ChainRenew>(&message)) {
    Renewed(now_us, *renew, actions);
  } else if (const auto* ask = std::get_if<ChainAsk>(&message)) {
    actions->push_back(ChainSend{ToClient(ask->client), ChainConfigure{config_, 0}});
  }
}

void ChainMaster::Renewed(std::int64_t now_us, const ChainRenew& renew, ChainMasterActions* actions) {
  Fact& fact = facts_[renew.member];
  if (renew.incarnation < fact.incarnation) return;
  if (renew.incarnation == fact.incarnation && renew.sent_us < fact.sent_us) return;  // overtaken by a later one
  if (renew.incarnation > fact.incarnation) {
    // Whatever an earlier life of it was lent died with it.
    if (fact.incarnation != 0) fact.lease_until_us = 0;
    fact.incarnation = renew.incarnation;
    fact.lost = false;
  }
  if (renew.epoch > config_.epoch) {
    if (!next_) outdated_ = true;
    return;
  }
  fact.alive = true;
  fact.heard_us = now_us;
  fact.sent_us = renew.sent_us;
  fact.epoch = renew.epoch;
  fact.position = renew.position;
  fact.synced = renew.synced;
  fact.lost = renew.lost;
  if (renew.epoch != 0) fact.placed = renew.incarnation;
  if (renew.stalled != kNoMember && renew.epoch == config_.epoch) {
    facts_[renew.stalled].away_until_us = now_us + times_.away_us;
  }
  Decide(now_us, actions);
  if (renew.epoch < config_.epoch) {
    // One that restarted is told when it has its place in a new epoch.
    if (fact.placed == fact.incarnation ||
        std::find(config_.members.begin(), config_.members.end(), renew.member) == config_.members.end()) {
      actions->push_back(ChainSend{ToMember(renew.member), ChainConfigure{config_, fact.incarnation}});
    }
    return;
  }
  // Also for another one: the tail may have asked while this one could still have a lease.
  if (config_.tail() == renew.member || granted_epoch_ != config_.epoch) Grant(now_us, actions);
}

void ChainMaster::Grant(std::int64_t now_us, ChainMasterActions* actions) {
  Fact& tail = facts_[config_.tail()];
  if (!tail.alive || tail.epoch != config_.epoch || !MayGrant(now_us)) return;
  granted_epoch_ = config_.epoch;
  tail.lease_until_us = now_us + times_.lease_us + times_.drift_us;
  actions->emplace_back(ChainSend{ToMember(config_.tail()), ChainGrant{config_.epoch, tail.sent_us}});
}

bool ChainMaster::MayGrant(std::int64_t now_us) const {
  if (now_us >= hold_until_us_ && !faults_.grant_without_seat) return false;
  if (faults_.grant_at_once) return true;
  // Before our start somebody else may have got one whom we do not know of.
  if (now_us < started_us_ + times_.lease_us + times_.drift_us) return false;
  return std::all_of(facts_.begin(), facts_.end(), [&](const auto& one) {
    const auto& [member, fact] = one;
    return member == config_.tail() || fact.lease_until_us <= now_us || fact.epoch >= config_.epoch;
  });
}

void ChainMaster::Gone(std::int64_t now_us, MemberId member, std::uint64_t incarnation, bool certain,
                       ChainMasterActions* actions) {
  const auto it = facts_.find(member);
  if (it == facts_.end() || it->second.incarnation != incarnation) return;
  it->second.alive = false;
  if (certain) it->second.lease_until_us = 0;
  Decide(now_us, actions);
}

bool ChainMaster::Alive(std::int64_t now_us, MemberId member) const {
  const auto it = facts_.find(member);
  if (it == facts_.end()) return false;
  const Fact& fact = it->second;
  if (fact.incarnation == 0) return now_us < started_us_ + times_.silent_us;
  return fact.alive && now_us - fact.heard_us < times_.silent_us;
}

void ChainMaster::Tick(std::int64_t now_us, ChainMasterActions* actions) {
  const std::int64_t round = std::max(4 * times_.renew_us, times_.silent_us / 4);
  if (ticked_us_ != 0 && now_us - ticked_us_ > round) {
    const std::int64_t stall = now_us - ticked_us_ - round;
    for (auto& [member, fact] : facts_) fact.heard_us = std::min(fact.heard_us + stall, now_us);
  }
  ticked_us_ = now_us;
  Decide(now_us, actions);
}

void ChainMaster::Decide(std::int64_t now_us, ChainMasterActions* actions) {
  if (next_) return;
  // The very first configuration names a member that may not even know yet which chain it belongs to: nobody counts on
  // it before it has spoken. Anybody else who joined would have to be filled by it.
  if (config_.epoch == kCopiedEpoch && facts_[config_.members.front()].incarnation == 0) return;
  ChainConfig next = config_;

  // A joiner that lacks nothing is a member.
  if (next.joiner != kNoMember) {
    const Fact& joiner = facts_[next.joiner];
    const bool confirmed = next.switching && joiner.epoch == config_.epoch && joiner.synced && joiner.alive;
    if (confirmed || faults_.switch_before_filled) {
      next.members.push_back(next.joiner);
      next.joiner = kNoMember;
      next.switching = false;
    }
  }

  // The dead, those who forgot something, and those who take nothing go, as long as somebody stays.
  const auto fit = [&](MemberId member) {
    const Fact& fact = facts_[member];
    return Alive(now_us, member) && !fact.lost && now_us >= fact.away_until_us;
  };
  std::vector<MemberId> staying;
  std::copy_if(next.members.begin(), next.members.end(), std::back_inserter(staying), fit);
  bool changed = next.members != config_.members;
  // Of those who are not fit, one that has at least not lost anything may be needed still.
  if (!staying.empty() && staying.size() < next.members.size()) {
    next.members = staying;
    next.switching = false;  // a joiner has what its old predecessor had, not what the new one has
    changed = true;
  }

  // One that restarted takes its place again, with what it had stored.
  for (const MemberId member : next.members) {
    const Fact& fact = facts_[member];
    if (fact.incarnation != 0 && fact.alive && fact.epoch == 0 && fact.placed != fact.incarnation) {
      changed = true;
      next.switching = false;
    }
  }

  if (next.joiner != kNoMember) {
    Fact& joiner = facts_[next.joiner];
    if (joiner.position != joiner_position_) {
      joiner_position_ = joiner.position;
      joiner_us_ = now_us;
    }
    const bool restarted = joiner.incarnation != 0 && joiner.epoch == 0 && joiner.placed != joiner.incarnation;
    if (!fit(next.joiner) || (now_us - joiner_us_ >= 2 * times_.stall_us && !changed)) {
      joiner.away_until_us = std::max(joiner.away_until_us, now_us + times_.away_us);
      next.joiner = kNoMember;
      next.switching = false;
      changed = true;
    } else if (restarted) {
      next.switching = false;
      changed = true;
    } else if (!next.switching && !changed && joiner.epoch == config_.epoch) {
      const Fact& last = facts_[next.members.back()];
      if (last.epoch == config_.epoch && joiner.synced && joiner.position + times_.near_records >= last.position) {
        next.switching = true;
        changed = true;
      }
    }
  }

  if (next.joiner == kNoMember && !changed && Alive(now_us, next.members.back())) {
    for (auto& [member, fact] : facts_) {
      if (fact.incarnation == 0 || !fact.alive || !fit(member)) continue;
      if (std::find(next.members.begin(), next.members.end(), member) != next.members.end()) continue;
      next.joiner = member;
      joiner_us_ = now_us;
      joiner_position_ = fact.position;
      changed = true;
      break;
    }
  }

  if (!changed) return;
  next.epoch = config_.epoch + 1;
  next_ = next;
  actions->push_back(ChainSave{next});
  if (faults_.tell_before_saved) {
    config_ = next;
    Tell(actions);
  }
}

void ChainMaster::Saved(std::int64_t now_us, std::uint64_t epoch, ChainMasterActions* actions) {
  if (!next_ || next_->epoch != epoch) return;
  config_ = *next_;
  next_.reset();
  for (const MemberId member : config_.members) facts_[member].placed = facts_[member].incarnation;
  if (config_.joiner != kNoMember) facts_[config_.joiner].placed = facts_[config_.joiner].incarnation;
  joiner_us_ = now_us;
  Tell(actions);
  Decide(now_us, actions);  // what happened meanwhile
}

void ChainMaster::Tell(ChainMasterActions* actions) {
  for (const auto& [member, fact] : facts_) {
    if (fact.incarnation == 0) continue;
    actions->push_back(ChainSend{ToMember(member), ChainConfigure{config_, fact.incarnation}});
  }
  actions->push_back(ChainPublish{config_});
}

}  // namespace manta::rules
