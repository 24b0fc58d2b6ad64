#include "rules/chain_member.h"

#include <algorithm>

namespace manta::rules {

ChainMember::ChainMember(MemberId id, std::uint64_t incarnation, const ChainTimes& times, const ChainFaults& faults)
    : id_(id), incarnation_(incarnation), times_(times), faults_(faults), sessions_(times.client_window) {}

void ChainMember::Restore(std::uint64_t position, std::uint64_t last_epoch) {
  appended_ = stored_ = recent_base_ = position;
  appended_epoch_ = last_epoch;
}

void ChainMember::Restore(const Id& client, std::uint64_t client_sequence, std::uint64_t position) {
  sessions_.Add(client, client_sequence, position);
}

bool ChainMember::MayRead(std::int64_t now_us) const {
  if (faults_.keep_lease_over_epochs && now_us < lease_until_us_) return true;
  if (!acting_tail()) return false;
  return faults_.read_without_lease || now_us < lease_until_us_;
}

void ChainMember::Receive(std::int64_t now_us, const ChainMessage& message, ChainActions* actions) {
  std::visit([&](const auto& one) { On(now_us, one, actions); }, message);
}

// ---- from the master ----

void ChainMember::On(std::int64_t now_us, const ChainConfigure& message, ChainActions* actions) {
  if (message.incarnation != incarnation_ || message.config.epoch <= config_.epoch) return;
  config_ = message.config;
  std::vector<MemberId> order = config_.members;
  if (config_.joiner != kNoMember) order.push_back(config_.joiner);
  const auto self = std::find(order.begin(), order.end(), id_);
  predecessor_ = self == order.end() || self == order.begin() ? kNoMember : *(self - 1);
  successor_ = self == order.end() || self + 1 == order.end() ? kNoMember : *(self + 1);
  joining_ = config_.joiner == id_;
  feeding_joiner_ = successor_ != kNoMember && successor_ == config_.joiner && !config_.switching;

  granted_ = faults_.act_before_grant;
  if (!faults_.keep_lease_over_epochs) lease_until_us_ = 0;
  sync_known_ = false;
  sync_position_ = 0;
  heard_predecessor_ = false;
  resumed_ = false;
  checking_ = 0;
  fetching_ = false;
  sent_ = successor_stored_ = 0;
  Landed(~std::uint64_t{0});
  progress_us_ = resent_us_ = now_us;
  cannot_feed_ = false;
  if (self == order.end()) lost_ = false;
  // Clients ask again in every epoch. An entry from a time as head could name a record that was thrown away since.
  asked_again_.clear();

  for (const ChainRead& read : std::exchange(held_, {})) Refuse(read, actions);
  if (predecessor_ != kNoMember) AskPredecessor(now_us, actions);
  Renew(now_us, actions);  // who was the tail gives up its lease by this
  Commit(now_us, actions);
  if (early_ && early_->epoch == config_.epoch) Take(now_us, *early_, actions);
  if (early_ && early_->epoch <= config_.epoch) early_.reset();
}

void ChainMember::On(std::int64_t now_us, const ChainGrant& message, ChainActions* actions) {
  if (message.epoch != config_.epoch || !is_tail()) return;
  granted_ = true;
  const std::int64_t from_us = faults_.lease_from_receipt ? now_us : message.sent_us;
  lease_until_us_ = std::max(lease_until_us_, from_us + times_.lease_us);
  Commit(now_us, actions);
}

// ---- from the predecessor ----

void ChainMember::AskPredecessor(std::int64_t now_us, ChainActions* actions) {
  asked_us_ = now_us;
  actions->push_back(ChainSend{ToMember(predecessor_), ChainResume{config_.epoch, id_, appended_, appended_epoch_}});
}

void ChainMember::Connected(std::int64_t now_us, MemberId peer, ChainActions* actions) {
  if (peer == kNoMember) return;
  if (peer == predecessor_) {
    heard_predecessor_ = false;
    AskPredecessor(now_us, actions);
  } else if (peer == successor_ && resumed_ && !fetching_) {
    Begin(now_us, successor_stored_, actions);
  }
}

void ChainMember::On(std::int64_t now_us, const ChainEntries& message, ChainActions* actions) {
  const bool ours = message.epoch == config_.epoch && message.from == predecessor_ && predecessor_ != kNoMember;
  if (!ours && !faults_.accept_old_epochs) return;
  if (message.previous > appended_ && !faults_.accept_gaps) {
    heard_predecessor_ = false;
    if (now_us - asked_us_ >= times_.resend_us / 10) AskPredecessor(now_us, actions);
    return;
  }
  heard_predecessor_ = true;
  if (!sync_known_) {
    sync_known_ = true;
    sync_position_ = message.last;
  }
  const std::uint64_t before = appended_;
  for (const ChainRecord& record : message.records) {
    if (record.position > appended_) Append(record, actions);
  }
  if (appended_ == before || faults_.forward_before_stored) {
    Commit(now_us, actions);
    Acknowledge(actions);
    Feed(now_us, actions);
  }
}

void ChainMember::On(std::int64_t now_us, const ChainRefill& message, ChainActions* actions) {
  if (message.epoch != config_.epoch || message.from != predecessor_ || !joining_ || config_.switching) return;
  if (message.position != appended_ || appended_ == 0) {
    // It speaks of what we had before; or its log was cut while it fed us: let it look at what we have now.
    if (now_us - asked_us_ >= times_.resend_us / 10) AskPredecessor(now_us, actions);
    return;
  }
  ++generation_;
  actions->push_back(ChainWipe{generation_});
  appended_ = appended_epoch_ = stored_ = committed_ = recent_base_ = 0;
  recent_.clear();
  recent_bytes_ = 0;
  sessions_.Clear();
  sync_known_ = false;
  AskPredecessor(now_us, actions);
}

void ChainMember::Append(ChainRecord record, ChainActions* actions) {
  appended_ = record.position;
  appended_epoch_ = record.epoch;
  if (!faults_.forget_on_follow || is_head()) sessions_.Add(record.client, record.client_sequence, record.position);
  actions->push_back(ChainStore{generation_, record});
  recent_bytes_ += record.payload.size();
  recent_.push_back(std::move(record));
}

void ChainMember::Stored(std::int64_t now_us, std::uint64_t generation, std::uint64_t position, ChainActions* actions) {
  if (generation != generation_ || position <= stored_) return;
  stored_ = position;
  if (faults_.answer_at_head && is_head()) {
    for (const ChainRecord& record : recent_) {
      if (record.position != position || record.client.empty()) continue;
      actions->push_back(
          ChainSend{ToClient(record.client), ChainWritten{record.client, record.client_sequence, record.position}});
    }
  }
  Commit(now_us, actions);
  Acknowledge(actions);
  Feed(now_us, actions);
  Trim();
}

void ChainMember::Commit(std::int64_t now_us, ChainActions* actions) {
  if (!acting_tail()) return;
  // The grant may have come before the last of what a joiner lacked: then this is the time, not the next grant.
  if (!held_.empty() && MayRead(now_us)) {
    for (const ChainRead& read : std::exchange(held_, {})) Answer(now_us, read, actions);
  }
  if (solid() <= committed_) return;
  const auto first = std::upper_bound(recent_.begin(), recent_.end(), committed_,
                                      [](std::uint64_t at, const ChainRecord& record) { return at < record.position; });
  for (auto it = first; it != recent_.end() && it->position <= solid(); ++it) {
    if (it->client.empty()) continue;
    actions->push_back(ChainSend{ToClient(it->client), ChainWritten{it->client, it->client_sequence, it->position}});
  }
  committed_ = solid();
  asked_again_.clear();  // all of them are answered by the above
  Acknowledge(actions);
}

void ChainMember::Acknowledge(ChainActions* actions) {
  if (predecessor_ == kNoMember) return;
  actions->push_back(ChainSend{ToMember(predecessor_), ChainAcked{config_.epoch, id_, solid(), committed_}});
}

// ---- from the successor ----

void ChainMember::On(std::int64_t now_us, const ChainResume& message, ChainActions* actions) {
  if (message.epoch > config_.epoch) {
    if (!early_ || early_->epoch <= message.epoch) early_ = message;
    return;
  }
  if (message.epoch == config_.epoch) Take(now_us, message, actions);
}

void ChainMember::Take(std::int64_t now_us, const ChainResume& message, ChainActions* actions) {
  if (message.from != successor_ || successor_ == kNoMember) return;
  if (message.position > stored_) {
    if (feeding_joiner_) {
      actions->push_back(ChainSend{ToMember(successor_), ChainRefill{config_.epoch, id_, message.position}});
    } else if (message.position > appended_ && !lost_) {
      lost_ = true;  // it got from us what we have not: our storage forgot it
      Renew(now_us, actions);
    }
    return;
  }
  if (!feeding_joiner_ || message.position == 0 || faults_.trust_joiner)
    return Begin(now_us, message.position, actions);
  if (message.position > recent_base_) {
    const auto it = std::lower_bound(recent_.begin(), recent_.end(), message.position,
                                     [](const ChainRecord& record, std::uint64_t at) { return record.position < at; });
    if (it != recent_.end() && it->position == message.position && it->epoch == message.last_epoch) {
      return Begin(now_us, message.position, actions);
    }
    actions->push_back(ChainSend{ToMember(successor_), ChainRefill{config_.epoch, id_, message.position}});
    return;
  }
  resumed_ = false;
  checking_ = message.position;
  checking_epoch_ = message.last_epoch;
  fetching_ = true;
  actions->push_back(ChainFetch{message.position - 1, 1});
}

void ChainMember::Begin(std::int64_t now_us, std::uint64_t position, ChainActions* actions) {
  resumed_ = true;
  checking_ = 0;
  fetching_ = false;
  sent_ = successor_stored_ = position;
  Landed(~std::uint64_t{0});
  progress_us_ = resent_us_ = now_us;
  if (sent_ == solid()) {
    SendEntries(sent_, {}, actions);  // it wants to know that it has all
  } else {
    Feed(now_us, actions);
  }
}

void ChainMember::Feed(std::int64_t, ChainActions* actions) {
  if (successor_ == kNoMember || !resumed_) return;
  while (!fetching_ && sent_ < solid() && sent_ < successor_stored_ + times_.window_records &&
         flying_bytes_ < times_.window_bytes) {
    if (sent_ < recent_base_) {
      fetching_ = true;
      actions->push_back(ChainFetch{sent_, times_.batch_records});
      return;
    }
    std::vector<ChainRecord> records;
    auto it = std::upper_bound(recent_.begin(), recent_.end(), sent_,
                               [](std::uint64_t at, const ChainRecord& record) { return at < record.position; });
    std::uint64_t bytes = 0;
    for (; it != recent_.end() && it->position <= solid(); ++it) {
      if (records.size() == times_.batch_records || bytes >= times_.batch_bytes) break;
      bytes += it->payload.size();
      records.push_back(*it);
    }
    if (records.empty()) return;
    SendEntries(sent_, std::move(records), actions);
  }
}

void ChainMember::SendEntries(std::uint64_t previous, std::vector<ChainRecord> records, ChainActions* actions) {
  if (!records.empty()) {
    sent_ = records.back().position;
    std::uint64_t bytes = 0;
    for (const ChainRecord& record : records) bytes += record.payload.size();
    flying_.emplace_back(sent_, bytes);
    flying_bytes_ += bytes;
  }
  actions->push_back(
      ChainSend{ToMember(successor_), ChainEntries{config_.epoch, id_, previous, std::move(records), solid()}});
}

// All that was sent up to here has arrived, or will be sent again.
void ChainMember::Landed(std::uint64_t position) {
  while (!flying_.empty() && flying_.front().first <= position) {
    flying_bytes_ -= flying_.front().second;
    flying_.pop_front();
  }
}

void ChainMember::Fetched(std::int64_t now_us, std::uint64_t after, bool found, std::vector<ChainRecord> records,
                          ChainActions* actions) {
  if (!fetching_ || successor_ == kNoMember) return;
  if (checking_ != 0) {
    if (after + 1 != checking_) return;
    fetching_ = false;
    const std::uint64_t position = std::exchange(checking_, 0);
    if (found && !records.empty() && records[0].position == position && records[0].epoch == checking_epoch_) {
      return Begin(now_us, position, actions);
    }
    actions->push_back(ChainSend{ToMember(successor_), ChainRefill{config_.epoch, id_, position}});
    return;
  }
  if (after != sent_) return;
  fetching_ = false;
  if (!found) {
    if (feeding_joiner_ && sent_ > 0) {
      resumed_ = false;
      // What it has by now, not what we sent last: it throws away only what we mean.
      actions->push_back(ChainSend{ToMember(successor_), ChainRefill{config_.epoch, id_, successor_stored_}});
    } else {
      cannot_feed_ = true;
    }
    return;
  }
  while (!records.empty() && records.back().position > solid()) records.pop_back();
  if (records.empty()) return;
  SendEntries(after, std::move(records), actions);
  Feed(now_us, actions);
}

void ChainMember::On(std::int64_t now_us, const ChainAcked& message, ChainActions* actions) {
  if (message.epoch != config_.epoch || message.from != successor_ || successor_ == kNoMember) return;
  if (message.position > successor_stored_ || (message.committed > committed_ && !feeding_joiner_)) {
    progress_us_ = now_us;
  }
  successor_stored_ = std::max(successor_stored_, message.position);
  Landed(message.position);
  sent_ = std::max(sent_, std::min(message.position, solid()));
  if (!feeding_joiner_ && message.committed > committed_) {
    committed_ = std::min(message.committed, solid());
    while (!asked_again_.empty() && asked_again_.begin()->first <= committed_) {
      const auto& [position, who] = *asked_again_.begin();
      actions->push_back(ChainSend{ToClient(who.first), ChainWritten{who.first, who.second, position}});
      asked_again_.erase(asked_again_.begin());
    }
    Acknowledge(actions);
    Trim();
  }
  Feed(now_us, actions);
}

void ChainMember::Trim() {
  const std::uint64_t needless = joining_ && !config_.switching ? stored_ : std::min(committed_, stored_);
  while (!recent_.empty() && recent_.front().position <= needless &&
         (recent_.size() > times_.keep_records || recent_bytes_ > times_.keep_bytes)) {
    recent_base_ = recent_.front().position;
    recent_bytes_ -= recent_.front().payload.size();
    recent_.pop_front();
  }
}

// ---- from clients ----

void ChainMember::On(std::int64_t now_us, const ChainWrite& message, ChainActions* actions) {
  const ChainPeer client = ToClient(message.client);
  if (!is_head()) {
    actions->push_back(ChainSend{client, ChainRedirect{message.client, message.sequence, true, config_.epoch}});
    return;
  }
  const std::uint64_t position = faults_.apply_retries ? 0 : sessions_.Find(message.client, message.sequence);
  if (position == ChainSessions::kTooOld) return;
  if (position != 0) {
    if (position <= committed_) {
      actions->push_back(ChainSend{client, ChainWritten{message.client, message.sequence, position}});
    } else {
      asked_again_[position] = {message.client, message.sequence};
    }
    return;
  }
  Append(ChainRecord{config_.epoch, appended_ + 1, message.client, message.sequence, message.payload}, actions);
  if (faults_.forward_before_stored) {
    Commit(now_us, actions);
    Feed(now_us, actions);
  }
}

void ChainMember::On(std::int64_t now_us, const ChainRead& message, ChainActions* actions) {
  if (MayRead(now_us)) {
    Answer(now_us, message, actions);
  } else if (is_tail() && held_.size() < kMaxHeld) {
    held_.push_back(message);
  } else {
    Refuse(message, actions);
  }
}

void ChainMember::Answer(std::int64_t, const ChainRead& read, ChainActions* actions) {
  const std::uint64_t token = next_token_++;
  readings_[token] = {read.client, read.number};
  actions->push_back(ChainLookup{token, read.what});
}

void ChainMember::Refuse(const ChainRead& read, ChainActions* actions) const {
  actions->push_back(ChainSend{ToClient(read.client), ChainRedirect{read.client, read.number, false, config_.epoch}});
}

void ChainMember::ReadDone(std::int64_t now_us, std::uint64_t token, std::string value, ChainActions* actions) {
  const auto it = readings_.find(token);
  if (it == readings_.end()) return;
  const Reading reading = it->second;
  readings_.erase(it);
  const ChainPeer client = ToClient(reading.client);
  if (!faults_.read_not_rechecked && !MayRead(now_us)) {
    actions->push_back(ChainSend{client, ChainRedirect{reading.client, reading.number, false, config_.epoch}});
    return;
  }
  actions->push_back(ChainSend{client, ChainValue{reading.client, reading.number, std::move(value)}});
}

// ---- time ----

void ChainMember::Renew(std::int64_t now_us, ChainActions* actions) {
  renewed_us_ = now_us;
  ChainRenew renew{id_, incarnation_, config_.epoch, now_us, stored_, synced(), lost_, kNoMember};
  const bool waiting = successor_ != kNoMember && !feeding_joiner_ && (!resumed_ || committed_ < stored_);
  if (cannot_feed_ || (waiting && now_us - progress_us_ >= times_.stall_us)) renew.stalled = successor_;
  actions->push_back(ChainSend{ToMaster(), renew});
}

void ChainMember::Tick(std::int64_t now_us, ChainActions* actions) {
  if (now_us - renewed_us_ >= times_.renew_us) Renew(now_us, actions);
  if (predecessor_ != kNoMember && !heard_predecessor_ && now_us - asked_us_ >= times_.resend_us) {
    AskPredecessor(now_us, actions);
  }
  if (successor_ == kNoMember || !resumed_ || fetching_) return;
  const bool waiting = sent_ > successor_stored_ || (!feeding_joiner_ && committed_ < stored_) || sent_ < stored_;
  if (!waiting) {
    progress_us_ = now_us;
  } else if (now_us - std::max(progress_us_, resent_us_) >= times_.resend_us) {
    resent_us_ = now_us;
    sent_ = successor_stored_;
    Landed(~std::uint64_t{0});
    if (sent_ == solid()) {
      SendEntries(sent_, {}, actions);
    } else {
      Feed(now_us, actions);
    }
  }
}

}  // namespace manta::rules
