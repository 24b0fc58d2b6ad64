#include "rules/chain_client.h"

namespace manta::rules {

ChainClient::ChainClient(const Id& id, const ChainTimes& times, const ChainFaults& faults)
    : id_(id), times_(times), faults_(faults) {}

std::uint64_t ChainClient::Write(std::int64_t now_us, std::string payload, ChainClientActions* actions) {
  return WriteFor(now_us, id_, next_sequence_++, std::move(payload), actions);
}

std::uint64_t ChainClient::WriteFor(std::int64_t now_us, const Id& client, std::uint64_t sequence, std::string payload,
                                    ChainClientActions* actions) {
  const std::uint64_t number = next_number_++;
  Request& request = requests_[number];
  request = {true, client, sequence, std::move(payload), 0, false};
  writes_[{client, sequence}] = number;
  if (client == id_) own_.insert(sequence);
  if (InWindow(request)) {
    Send(now_us, number, request, actions);
  } else {
    held_.insert(number);
  }
  return number;
}

std::uint64_t ChainClient::Read(std::int64_t now_us, std::string what, ChainClientActions* actions) {
  const std::uint64_t number = next_number_++;
  Request& request = requests_[number];
  request.text = std::move(what);
  Send(now_us, number, request, actions);
  return number;
}

bool ChainClient::InWindow(const Request& request) const {
  return !request.write || request.client != id_ || request.sequence < *own_.begin() + times_.client_window;
}

void ChainClient::Send(std::int64_t now_us, std::uint64_t number, Request& request, ChainClientActions* actions) {
  if (request.sent && request.write && faults_.retry_under_new_number) {
    own_.erase(request.sequence);
    request.sequence = next_sequence_++;
    own_.insert(request.sequence);
    writes_[{request.client, request.sequence}] = number;
  }
  request.sent = true;
  request.sent_us = now_us;
  const MemberId to = request.write ? config_.head() : config_.tail();
  if (to == kNoMember) return;
  if (request.write) {
    actions->push_back(ChainSend{ToMember(to), ChainWrite{request.client, request.sequence, request.text}});
  } else {
    actions->push_back(ChainSend{ToMember(to), ChainRead{id_, number, request.text}});
  }
}

void ChainClient::SendHeld(std::int64_t now_us, ChainClientActions* actions) {
  while (!held_.empty()) {
    const std::uint64_t number = *held_.begin();
    if (!InWindow(requests_[number])) return;
    held_.erase(held_.begin());
    Send(now_us, number, requests_[number], actions);
  }
}

void ChainClient::Finished(std::int64_t now_us, std::uint64_t number, ChainClientActions* actions) {
  GiveUp(number);
  SendHeld(now_us, actions);
}

void ChainClient::GiveUp(std::uint64_t number) {
  const auto it = requests_.find(number);
  if (it == requests_.end()) return;
  if (it->second.write) {
    writes_.erase({it->second.client, it->second.sequence});
    if (it->second.client == id_) own_.erase(it->second.sequence);
    held_.erase(number);
  }
  requests_.erase(it);
}

void ChainClient::Receive(std::int64_t now_us, const ChainMessage& message, ChainClientActions* actions) {
  if (const auto* configure = std::get_if<ChainConfigure>(&message)) {
    if (configure->config.epoch <= config_.epoch) return;
    config_ = configure->config;
    for (auto& [number, request] : requests_) {
      if (request.sent) Send(now_us, number, request, actions);
    }
  } else if (const auto* written = std::get_if<ChainWritten>(&message)) {
    const auto it = writes_.find({written->client, written->sequence});
    if (it == writes_.end()) return;
    const std::uint64_t number = it->second;
    Finished(now_us, number, actions);
    actions->push_back(ChainWriteDone{number, written->position});
  } else if (const auto* value = std::get_if<ChainValue>(&message)) {
    if (value->client != id_ || !requests_.contains(value->number)) return;
    Finished(now_us, value->number, actions);
    actions->push_back(ChainReadDone{value->number, value->value});
  } else if (const auto* redirect = std::get_if<ChainRedirect>(&message)) {
    // Perhaps it knows more than we do. If not, it will soon: Tick sends again.
    if (redirect->epoch > config_.epoch && now_us - asked_us_ >= times_.renew_us) {
      asked_us_ = now_us;
      actions->push_back(ChainSend{ToMaster(), ChainAsk{id_}});
    }
    std::uint64_t number = redirect->number;
    if (!redirect->write && redirect->client != id_) return;
    if (redirect->write) {
      const auto write = writes_.find({redirect->client, redirect->number});
      if (write == writes_.end()) return;
      number = write->second;
    }
    const auto it = requests_.find(number);
    // A fifth of a lease from now: the tail's grant is on its way.
    if (it != requests_.end()) it->second.sent_us = now_us - times_.resend_us + times_.lease_us / 5;
  }
}

void ChainClient::Connected(std::int64_t now_us, MemberId member, ChainClientActions* actions) {
  for (auto& [number, request] : requests_) {
    if (request.sent && (request.write ? config_.head() : config_.tail()) == member) {
      Send(now_us, number, request, actions);
    }
  }
}

void ChainClient::Tick(std::int64_t now_us, ChainClientActions* actions) {
  SendHeld(now_us, actions);  // one that was given up may have made room
  bool silent = false;
  for (auto& [number, request] : requests_) {
    if (!request.sent || now_us - request.sent_us < times_.resend_us) continue;
    silent = true;
    Send(now_us, number, request, actions);
  }
  if (silent && now_us - asked_us_ >= times_.resend_us) {
    asked_us_ = now_us;
    actions->push_back(ChainSend{ToMaster(), ChainAsk{id_}});
  }
}

}  // namespace manta::rules
