#include "tune/trials/table.h"

#include <stdexcept>
#include <string>

namespace manta::tune::trials {
namespace {

constexpr double kRounding = 1e-9;  // fractions such as 0.1 do not add up exactly

Amounts Sum(const TrialResources& resources) {
  Amounts sum;
  for (const Amounts& bundle : resources.bundles) {
    for (const auto& [name, amount] : bundle) sum[name] += amount;
  }
  return sum;
}

double In(const Amounts& amounts, const std::string& name) {
  auto found = amounts.find(name);
  return found == amounts.end() ? 0 : found->second;
}

}  // namespace

Trial& TrialTable::Add(Config config, TrialResources resources) {
  Trial& trial = trials_.emplace_back();
  trial.number = static_cast<TrialNumber>(trials_.size()) - 1;
  trial.config = std::move(config);
  trial.resources = std::move(resources);
  ready_.insert(trial.number);
  ++counts_.pending;
  return trial;
}

Trial& TrialTable::at(TrialNumber number) {
  if (number < 0 || number >= static_cast<TrialNumber>(trials_.size())) {
    throw std::invalid_argument("trial " + std::to_string(number) + " does not exist; the run has " +
                                std::to_string(trials_.size()) + " trials");
  }
  return trials_[static_cast<std::size_t>(number)];
}

const Trial& TrialTable::at(TrialNumber number) const { return const_cast<TrialTable*>(this)->at(number); }

std::int64_t& TrialTable::CountOf(Status status) {
  switch (status) {
    case Status::kPending:
      return counts_.pending;
    case Status::kRunning:
      return counts_.running;
    case Status::kPaused:
      return counts_.paused;
    case Status::kTerminated:
      return counts_.terminated;
    case Status::kError:
      break;
  }
  return counts_.error;
}

void TrialTable::SetStatus(Trial& trial, Status status) {
  const TrialNumber number = trial.number;
  if (ready_.erase(number) == 0 && trial.status == Status::kPending) delayed_.erase({trial.not_before, number});
  if (trial.status == Status::kRunning) running_.erase(number);
  if (trial.status == Status::kPaused) paused_.erase(number);
  --CountOf(trial.status);
  trial.status = status;
  ++CountOf(status);
  if (status == Status::kPending) ready_.insert(number);
  if (status == Status::kRunning) running_.insert(number);
  if (status == Status::kPaused) paused_.insert(number);
}

void TrialTable::Delay(Trial& trial, double when) {
  ready_.erase(trial.number);
  trial.not_before = when;
  delayed_.insert({when, trial.number});
}

void TrialTable::Wake(double now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    ready_.insert(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
  }
}

void Ledger::SetCapacity(Amounts capacity) {
  known_ = true;
  capacity_ = std::move(capacity);
}

bool Ledger::Fits(const TrialResources& resources) const {
  if (!known_) return false;
  for (const auto& [name, amount] : Sum(resources)) {
    if (amount > 0 && In(used_, name) + amount > In(capacity_, name) + kRounding) return false;
  }
  return true;
}

bool Ledger::Possible(const TrialResources& resources) const {
  for (const auto& [name, amount] : Sum(resources)) {
    if (amount > In(capacity_, name) + kRounding) return false;
  }
  return true;
}

void Ledger::Take(const TrialResources& resources) {
  for (const auto& [name, amount] : Sum(resources)) used_[name] += amount;
}

void Ledger::Give(const TrialResources& resources) {
  for (const auto& [name, amount] : Sum(resources)) {
    double& used = used_[name];
    used -= amount;
    if (used < kRounding) used = 0;
  }
}

}  // namespace manta::tune::trials
