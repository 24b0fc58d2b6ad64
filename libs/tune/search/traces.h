// Compares a scheduler with a recorded trace of Ray's scheduler (record_ray_traces.py). A trace is one line,
//
//   hyperband mode=min max_t=9 | a0 a1 c0: r0:1:0.5:P c1: r1:1:0.7:S!0
//
// the scheduler with its options, and then the events with Ray's answer:
//   a3{lr=0.1}   trial 3 is added, with its configuration
//   c3:  c-:     trial 3 is chosen to start; no trial is
//   r3:2:0.5:D   trial 3 reports the value 0.5 at time 2, and the decision is D
//   e3:  d3:     trial 3 fails; it ends by itself
// A decision is C (continue), P (pause, followed by [CPU=2] for new resources), S (stop) or X (exploit). "+" asks for a
// checkpoint. An exploit is shown as donor@iteration/iteration of the donor{configuration}. After every answer follow
// the orders: !4 stops trial 4, ~4 resumes it, x4<2@… exploits.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "manta/tune/population.h"
#include "manta/tune/resources.h"
#include "manta/tune/schedule.h"

namespace manta::tune {

class TraceStates : public TrialStates {
 public:
  std::optional<TrialNumber> FirstPending() const override { return First(TrialState::kPending); }
  std::optional<TrialNumber> FirstPaused() const override { return First(TrialState::kPaused); }
  TrialState Get(TrialNumber trial) const override { return of.at(trial); }
  bool AnyRunning() const override { return First(TrialState::kRunning).has_value(); }
  bool MayAdd() const override { return may_add; }
  double Total(const std::string& resource) const override { return resource == "CPU" ? cpus : 0; }

  std::map<TrialNumber, TrialState> of;
  bool may_add = false;
  double cpus = 0;

 private:
  std::optional<TrialNumber> First(TrialState wanted) const {
    for (auto [trial, state] : of) {
      if (state == wanted) return trial;
    }
    return std::nullopt;
  }
};

class TraceChecker {
 public:
  // Empty if all answers are Ray's, else the first event that differs and the answer of the scheduler. After every
  // `save_every` events the scheduler is saved and loaded into a new one; 0: never.
  static std::string Check(const std::string& line, int save_every) { return TraceChecker(line).Run(save_every); }

 private:
  explicit TraceChecker(const std::string& line) : words_(line) {
    words_ >> kind_;
    for (std::string word; words_ >> word && word != "|";) {
      auto at = word.find('=');
      options_[word.substr(0, at)] = word.substr(at + 1);
    }
    scheduler_ = Make();
    if (options_.contains("cpus")) states_.cpus = Number("cpus");
  }

  double Number(const std::string& key) const { return std::strtod(options_.at(key).c_str(), nullptr); }
  bool Flag(const std::string& key) const { return Number(key) != 0; }
  Mode TheMode() const { return options_.at("mode") == "min" ? Mode::kMin : Mode::kMax; }
  std::uint64_t Seed() const { return std::strtoull(options_.at("seed").c_str(), nullptr, 10); }

  std::unique_ptr<Scheduler> Make() const {
    if (kind_ == "asha") {
      return MakeScheduler(Asha{.mode = TheMode(),
                                .max_t = Number("max_t"),
                                .grace_period = Number("grace_period"),
                                .reduction_factor = Number("reduction_factor"),
                                .stop_last_trials = Flag("stop_last_trials")});
    }
    if (kind_ == "median") {
      return MakeScheduler(MedianStopping{.mode = TheMode(),
                                          .grace_period = Number("grace_period"),
                                          .min_samples_required = static_cast<int>(Number("min_samples_required")),
                                          .min_time_slice = Number("min_time_slice"),
                                          .hard_stop = Flag("hard_stop")});
    }
    if (kind_.starts_with("hyperband")) return MakeScheduler(MakeHyperBand<HyperBand>());
    if (kind_.starts_with("bohb")) return MakeScheduler(MakeHyperBand<HyperBandForBohb>());
    if (kind_.starts_with("pbt")) return MakePbt();
    return MakeResources();
  }

  template <class Options>
  Options MakeHyperBand() const {
    return Options{.mode = TheMode(),
                   .max_t = Number("max_t"),
                   .reduction_factor = Number("reduction_factor"),
                   .stop_last_trials = Flag("stop_last_trials")};
  }

  std::unique_ptr<Scheduler> MakePbt() const {
    return MakeScheduler(Pbt{.mode = TheMode(),
                             .perturbation_interval = Number("perturbation_interval"),
                             .burn_in_period = Number("burn_in_period"),
                             .mutations = {{"act", std::vector<Value>{"elu", "relu", "tanh"}},
                                           {"batch", Uniform(8, 64)},
                                           {"lr", Uniform(0.001, 0.5)}},
                             .quantile_fraction = Number("quantile_fraction"),
                             .resample_probability = Number("resample_probability"),
                             .synch = Flag("synch"),
                             .seed = Seed()});
  }

  std::unique_ptr<Scheduler> MakeResources() const {
    DistributeResources distribute{.add_bundles = Flag("add_bundles"),
                                   .increase_by_times = static_cast<int>(Number("increase_by_times")),
                                   .reserve_resources = {{"CPU", Number("reserve")}}};
    if (Flag("increase_by")) distribute.increase_by["CPU"] = Number("increase_by");
    ResourceChanging options;
    options.allocation = distribute;
    if (Flag("top")) options.allocation = DistributeResourcesToTopJob{distribute, TheMode()};
    return MakeScheduler(options,
                         MakeScheduler(Asha{.mode = TheMode(), .max_t = 20, .grace_period = 2, .reduction_factor = 3}));
  }

  std::string Run(int save_every) {
    int n = 0;
    for (std::string event; words_ >> event; ++n) {
      if (save_every > 0 && n % save_every == save_every - 1) {
        std::string saved = scheduler_->Save();
        scheduler_ = Make();
        scheduler_->Load(saved);
      }
      char* rest = nullptr;
      TrialNumber trial = std::strtol(event.c_str() + 1, &rest, 10);
      std::string answer = Answer(event[0], trial, rest);
      if (event[0] == 'r') {
        std::strtod(rest + 1, &rest);
        std::strtod(rest + 1, &rest);
      }
      std::string wanted = event[0] == 'c' ? event.substr(1) : event[0] == 'a' ? "" : std::string(rest + 1);
      if (answer != wanted) return "event " + std::to_string(n) + ", " + event + ": " + answer;
    }
    return n == 0 ? "the trace is empty" : "";
  }

  std::string Answer(char what, TrialNumber trial, const char* rest) {
    if (what == 'a') {
      states_.of[trial] = TrialState::kPending;
      (void)scheduler_->OnAdd(trial, ParseConfig(rest));
      return "";
    }
    if (what == 'c') {
      Orders orders;
      auto chosen = scheduler_->Choose(states_, orders);
      std::string text = (chosen ? std::to_string(*chosen) : "-") + ":" + Apply(orders);
      if (chosen) states_.of[*chosen] = TrialState::kRunning;
      return text;
    }
    if (what == 'e') return Apply(scheduler_->OnError(trial, states_), trial);
    if (what == 'd') return Apply(scheduler_->OnComplete(trial, last_[trial], states_), trial);
    char* next = nullptr;
    double time = std::strtod(rest + 1, &next);
    double value = std::strtod(next + 1, nullptr);
    last_[trial] = {time, value, static_cast<std::int64_t>(time)};
    return Outcome(trial, scheduler_->OnResult(trial, last_[trial], states_));
  }

  std::string Outcome(TrialNumber trial, const Decision& decision) {
    std::string text(1, "CPSX"[static_cast<int>(decision.kind)]);
    if (decision.save) text += "+";
    if (decision.exploit) text += Text(*decision.exploit);
    if (decision.resources) text += Text(*decision.resources);
    text += Apply(decision.orders);
    if (decision.kind == Decision::Kind::kStop) {
      text += Apply(scheduler_->OnComplete(trial, last_[trial], states_), trial);
    } else if (decision.kind != Decision::Kind::kContinue) {
      states_.of[trial] = TrialState::kPaused;
    }
    return text;
  }

  std::string Apply(const Orders& orders, std::optional<TrialNumber> ended = {}) {
    if (ended) states_.of[*ended] = TrialState::kEnded;
    std::string text;
    for (const Order& order : orders) {
      std::string trial = std::to_string(order.trial);
      if (order.kind == Order::Kind::kResume) {
        text += "~" + trial;
      } else if (order.kind == Order::Kind::kExploit) {
        text += "x" + trial + "<" + Text(*order.exploit);
        states_.of[order.trial] = TrialState::kPaused;
      } else {
        text += "!" + trial;
        text += Apply(scheduler_->OnRemove(order.trial, states_), order.trial);
      }
    }
    return text;
  }

  static std::string Text(double number) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.12g", number);
    return buffer;
  }
  static std::string Text(const Exploit& exploit) {
    const auto& log = exploit.log.value();
    std::string text = std::to_string(exploit.donor) + "@" + std::to_string(log.trial_iteration) + "/" +
                       std::to_string(log.donor_iteration) + "{";
    for (const auto& [key, value] : exploit.config) {
      if (text.back() != '{') text += ",";
      text += key + "=";
      if (const auto* word = std::get_if<std::string>(&value)) text += *word;
      if (const auto* whole = std::get_if<std::int64_t>(&value)) text += std::to_string(*whole);
      if (const auto* real = std::get_if<double>(&value)) text += Text(*real);
    }
    return text + "}";
  }
  static std::string Text(const Bundles& bundles) {
    std::string text;
    for (const auto& bundle : bundles) {
      text += text.empty() ? "[" : "|";
      bool first = true;
      for (const auto& [name, amount] : bundle) {
        if (amount == 0) continue;
        text += (first ? "" : ";") + name + "=" + Text(amount);
        first = false;
      }
    }
    return text + "]";
  }
  static Config ParseConfig(const std::string& text) {
    Config config;
    std::istringstream parts(text.empty() ? "" : text.substr(1, text.size() - 2));
    for (std::string part; std::getline(parts, part, ',');) {
      auto at = part.find('=');
      std::string key = part.substr(0, at);
      std::string value = part.substr(at + 1);
      if (key == "act") config[key] = value;
      if (key == "batch") config[key] = static_cast<std::int64_t>(std::strtol(value.c_str(), nullptr, 10));
      if (key == "lr") config[key] = std::strtod(value.c_str(), nullptr);
    }
    return config;
  }

  std::istringstream words_;
  std::string kind_;
  std::map<std::string, std::string> options_;
  std::unique_ptr<Scheduler> scheduler_;
  TraceStates states_;
  std::map<TrialNumber, Report> last_;
};

}  // namespace manta::tune
