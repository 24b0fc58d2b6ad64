// Ray's PopulationBasedTraining without its files: what it writes is part of the decisions. One difference: when the
// last trial that the others wait for ends (synch), the others are perturbed at once; Ray's trials would wait for ever.
#include "tune/search/population.h"

#include <algorithm>
#include <cmath>

namespace manta::tune {

Population::Population(PopulationOptions options) : options_(std::move(options)) {
  if (!(options_.quantile_fraction >= 0) || options_.quantile_fraction > 0.5) {
    throw std::invalid_argument("quantile_fraction is " + std::to_string(options_.quantile_fraction) +
                                ". Give a number between 0 and 0.5.");
  }
  if (!(options_.perturbation_interval > 0)) {
    throw std::invalid_argument("perturbation_interval is " + std::to_string(options_.perturbation_interval) +
                                ". Give a number above 0.");
  }
  next_synch_ = std::max(options_.perturbation_interval, options_.burn_in_period);
}

std::optional<Config> Population::OnAdd(TrialNumber trial, const Config& config) {
  Member& member = members_[trial];
  member.order = next_order_++;
  member.config = config;
  trial_of_[member.order] = trial;
  train_times_.insert({member.last_train, member.order});
  Stream random(options_.seed, trial, Purpose::kSample);
  Fill(member.config, random);
  return member.config == config ? std::nullopt : std::optional(member.config);
}

Decision Population::OnResult(TrialNumber trial, const Report& report, const TrialStates& states) {
  auto found = members_.find(trial);
  if (found == members_.end()) {
    throw std::invalid_argument("trial " + std::to_string(trial) + " is unknown to the scheduler. Add it first.");
  }
  if (!report.time || !report.value) {
    if (!options_.require_attrs) return {};
    throw std::invalid_argument("the result of trial " + std::to_string(trial) + " lacks the " +
                                (report.time ? "metric" : "time attribute") +
                                ". Report it with every result, or set require_attrs to false.");
  }
  Decision decision = Decide(trial, found->second, report, states);
  found->second.iteration = report.iteration;
  return decision;
}

Decision Population::Decide(TrialNumber trial, Member& member, const Report& report, const TrialStates& states) {
  double time = *report.time;
  if (time < options_.burn_in_period) return {};
  if (time - member.last_perturbation < options_.perturbation_interval) return {};
  double score = options_.mode == Mode::kMax ? *report.value : -*report.value;
  SetScore(member, score);
  SetTrainTime(member, time);
  OnScore(trial, member.config, time, score);
  if (options_.synch) return DecideTogether(trial, time, states);
  member.last_perturbation = time;
  Decision decision;
  if (states.FirstPending() || states.FirstPaused()) decision.kind = Decision::Kind::kPause;
  decision.exploit = SaveOrExploit(trial, member, states);
  decision.save = member.saved;
  if (decision.exploit) decision.kind = Decision::Kind::kExploit;
  return decision;
}

bool Population::AllWait(std::optional<TrialNumber> except) const {
  for (const auto& [time, order] : train_times_) {
    if (trial_of_.at(order) != except) return time >= next_synch_;
  }
  return true;
}

Decision Population::DecideTogether(TrialNumber trial, double time, const TrialStates& states) {
  Decision decision{Decision::Kind::kPause};
  if (!AllWait(trial)) return decision;
  decision.orders = PerturbAll(time, trial, &decision, states);
  return decision;
}

Orders Population::PerturbAll(double time, std::optional<TrialNumber> reporting, Decision* own,
                              const TrialStates& states) {
  // The best save before the worst clone them.
  std::vector<TrialNumber> best;
  std::vector<TrialNumber> others;
  std::vector<TrialNumber> worst;
  std::size_t n = InQuantile();
  for (std::size_t i = 0; i < n; ++i) {
    worst.push_back(trial_of_.at(ranking_[i].second));
    best.push_back(trial_of_.at(ranking_[ranking_.size() - n + i].second));
  }
  for (const auto& [order, trial] : trial_of_) {
    const Member& member = members_.at(trial);
    if (Ranked(member) && (Rank(member) < n || Rank(member) >= ranking_.size() - n)) continue;
    others.push_back(trial);
  }
  Orders orders;
  for (const auto* group : {&best, &others, &worst}) {
    for (TrialNumber trial : *group) {
      Member& member = members_.at(trial);
      member.last_perturbation = time;
      auto exploit = SaveOrExploit(trial, member, states);
      if (trial == reporting) {
        own->save = member.saved;
        if (exploit) own->kind = Decision::Kind::kExploit;
        own->exploit = std::move(exploit);
      } else if (exploit) {
        orders.push_back({Order::Kind::kExploit, trial, std::move(exploit)});
      }
    }
  }
  double longest = std::max(longest_ended_, train_times_.empty() ? 0 : train_times_.rbegin()->first);
  next_synch_ = std::max(next_synch_ + options_.perturbation_interval, longest);
  return orders;
}

std::optional<Exploit> Population::SaveOrExploit(TrialNumber trial, Member& member, const TrialStates& states) {
  std::size_t n = InQuantile();
  bool ranked = Ranked(member);
  std::size_t rank = Rank(member);
  member.saved = ranked && rank >= ranking_.size() - n && rank < ranking_.size();
  if (!ranked || rank >= n) return std::nullopt;
  return ExploitOne(trial, member, states);
}

std::optional<Exploit> Population::ExploitOne(TrialNumber trial, Member& member, const TrialStates& states) {
  std::size_t n = InQuantile();
  Stream random(options_.seed + member.explored++ * 0x9E3779B97F4A7C15, trial, Purpose::kExplore);
  std::size_t chosen = ranking_.size() - n + random.Below(static_cast<std::uint32_t>(n));
  TrialNumber donor = trial_of_.at(ranking_[chosen].second);
  const Member& from = members_.at(donor);
  if (!from.saved || !states.HasCheckpoint(donor)) return std::nullopt;
  Config config = Explore(trial, donor, from.config, random);
  if (options_.custom_explore) config = options_.custom_explore(std::move(config));
  Exploit exploit{donor, config};
  if (options_.log_config) {
    exploit.log = PolicyLine{trial, donor, member.iteration, from.iteration, from.config, config};
  }
  member.config = std::move(config);
  member.last_perturbation = from.last_perturbation;
  SetTrainTime(member, from.last_train);
  return exploit;
}

Orders Population::OnRemove(TrialNumber trial, const TrialStates& states) {
  auto found = members_.find(trial);
  if (found == members_.end()) return {};
  Member& member = found->second;
  SetScore(member, std::nullopt);
  train_times_.erase({member.last_train, member.order});
  longest_ended_ = std::max(longest_ended_, member.last_train);
  trial_of_.erase(member.order);
  members_.erase(found);
  if (!options_.synch || train_times_.empty() || !AllWait(std::nullopt)) return {};
  return PerturbAll(train_times_.rbegin()->first, std::nullopt, nullptr, states);
}

// The least trained trial first, so that all trials get their share of the machine.
std::optional<TrialNumber> Population::Choose(const TrialStates& states, Orders&) {
  for (const auto& [time, order] : train_times_) {
    if (options_.synch && time >= next_synch_) break;
    TrialNumber trial = trial_of_.at(order);
    auto state = states.Get(trial);
    if (state == TrialState::kPending || state == TrialState::kPaused) return trial;
  }
  return std::nullopt;
}

void Population::SetTrainTime(Member& member, double time) {
  train_times_.erase({member.last_train, member.order});
  member.last_train = time;
  train_times_.insert({time, member.order});
}

void Population::SetScore(Member& member, std::optional<double> score) {
  if (Ranked(member)) ranking_.erase(ranking_.begin() + static_cast<std::ptrdiff_t>(Rank(member)));
  member.score = score;
  if (Ranked(member)) {
    ranking_.insert(ranking_.begin() + static_cast<std::ptrdiff_t>(Rank(member)), {*score, member.order});
  }
}

bool Population::Ranked(const Member& member) const { return member.score && !std::isnan(*member.score); }

std::size_t Population::Rank(const Member& member) const {
  if (!Ranked(member)) return ranking_.size();
  std::pair<double, AddOrder> entry(*member.score, member.order);
  return static_cast<std::size_t>(std::ranges::lower_bound(ranking_, entry) - ranking_.begin());
}

std::size_t Population::InQuantile() const {
  if (ranking_.size() <= 1) return 0;
  auto n = static_cast<std::size_t>(std::ceil(static_cast<double>(ranking_.size()) * options_.quantile_fraction));
  return std::min(n, ranking_.size() / 2);
}

void Population::Restore() {
  ranking_.clear();
  train_times_.clear();
  for (const auto& [trial, member] : members_) {
    train_times_.insert({member.last_train, member.order});
    if (Ranked(member)) ranking_.emplace_back(*member.score, member.order);
  }
  std::ranges::sort(ranking_);
}

}  // namespace manta::tune
