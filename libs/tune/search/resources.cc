// Ray's ResourceChangingScheduler with its two ways to share free CPUs and GPUs. The scheduler keeps the placement
// groups of the live trials itself, so that it never visits all trials of the run.
#include "manta/tune/resources.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tune/search/archive.h"

namespace manta::tune {
namespace {

using Amounts = std::map<std::string, double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Get(const Amounts& amounts, const std::string& name, double otherwise = 0) {
  auto found = amounts.find(name);
  return found == amounts.end() ? otherwise : found->second;
}

bool Empty(const Amounts& bundle) { return Get(bundle, "CPU") == 0 && Get(bundle, "GPU") == 0; }

Amounts Sum(const Bundles& bundles) {
  if (bundles.empty()) return {{"CPU", 0}, {"GPU", 0}};
  Amounts sum;
  for (const auto& bundle : bundles) {
    for (const auto& [name, amount] : bundle) sum[name] += amount;
  }
  return sum;
}

Bundles WithoutZeros(Bundles bundles) {
  for (auto& bundle : bundles) std::erase_if(bundle, [](const auto& entry) { return entry.second == 0; });
  return bundles;
}

// The arithmetic of Ray's DistributeResources. "Added" bundles are those above what a trial starts with.
class Distribution {
 public:
  Distribution(const DistributeResources& options, const Bundles& base) : options_(options), base_(base) {
    if (!options.add_bundles && base.size() != 1) {
      throw std::invalid_argument("a trial has " + std::to_string(base.size()) +
                                  " bundles, and only one bundle can grow. Set add_bundles to true.");
    }
    if (base.empty()) throw std::invalid_argument("a trial has no bundle. Give the resources of a trial.");
    if (!options.increase_by.empty()) {
      unit_ = options.increase_by;
    } else if (options.add_bundles) {
      unit_ = base.back();
    } else {
      unit_ = {{Get(base[0], "GPU") > 0 ? "GPU" : "CPU", 1}};
    }
    if (Empty(unit_) || Get(unit_, "CPU") < 0 || Get(unit_, "GPU") < 0) {
      throw std::invalid_argument("increase_by has neither CPUs nor GPUs. Give an amount above 0.");
    }
  }

  double Available(const TrialStates& states, const std::string& name) const {
    return states.Total(name) - Get(options_.reserve_resources, name);
  }

  Bundles Added(const Bundles& bundles, const Bundles& base) const {
    if (options_.add_bundles) {
      auto n = std::min(bundles.size(), base.size());
      return {bundles.begin() + static_cast<std::ptrdiff_t>(n), bundles.end()};
    }
    Amounts empty;
    const Amounts& now = bundles.empty() ? empty : bundles[0];
    const Amounts& then = base.empty() ? empty : base[0];
    return {{{"CPU", Get(now, "CPU") - Get(then, "CPU")}, {"GPU", Get(now, "GPU") - Get(then, "GPU")}}};
  }

  // How often the unit fits; negative when more is used than there is.
  int Fits(double cpus, double gpus) const {
    double cpu = Get(unit_, "CPU");
    double gpu = Get(unit_, "GPU");
    double times = cpu > 0 && gpu > 0 ? std::min(std::floor(cpus / cpu), std::floor(gpus / gpu))
                   : gpu > 0          ? std::floor(gpus / gpu)
                                      : std::floor(cpus / cpu);
    return static_cast<int>(times);
  }

  // The added bundles after `times` units more or less; at most `limit` units in all, if above 0.
  Bundles Change(const Bundles& added, int times, int limit) const {
    if (times == 0) return added;
    if (times < 0) return Remove(added, -times);
    Bundles more(options_.add_bundles ? static_cast<std::size_t>(times) : 1, unit_);
    if (!options_.add_bundles) more = {{{"CPU", Get(unit_, "CPU") * times}, {"GPU", Get(unit_, "GPU") * times}}};
    int own = options_.increase_by_times;
    if (own > 0) limit = limit > 0 ? std::min(limit, own) : own;
    return Join(added, more, limit);
  }

  Bundles Join(const Bundles& a, const Bundles& b, int limit) const {
    if (!options_.add_bundles) {
      Amounts sum;
      for (const char* name : {"CPU", "GPU"}) {
        sum[name] = (a.empty() ? 0 : Get(a[0], name)) + (b.empty() ? 0 : Get(b[0], name));
        if (limit > 0) sum[name] = std::min(sum[name], Get(unit_, name) * limit);
      }
      return {sum};
    }
    Bundles all;
    for (const auto* part : {&a, &b}) {
      for (const auto& bundle : *part) {
        if (!Empty(bundle) && (limit <= 0 || static_cast<int>(all.size()) < limit)) all.push_back(bundle);
      }
    }
    return all;
  }

  // How many units each of `trials` trials gets when all of them share what is there.
  int EvenShare(double cpus, double gpus, std::size_t trials) const {
    Amounts start = Sum(base_);
    cpus -= Get(start, "CPU") * static_cast<double>(trials);
    gpus -= Get(start, "GPU") * static_cast<double>(trials);
    std::vector<Bundles> given(trials);
    std::set<std::size_t> full;
    int share = 0;
    for (std::size_t i = 0; full.size() < trials && cpus >= Get(unit_, "CPU") && gpus >= Get(unit_, "GPU"); ++i) {
      std::size_t index = i % trials;
      Bundles more = Change(given[index], std::min(Fits(cpus, gpus), 1), -1);
      Amounts added = Sum(Added(more, given[index]));
      given[index] = std::move(more);
      if (Empty(added)) {
        full.insert(index);
      } else if (index == 0) {
        ++share;
      }
      cpus -= Get(added, "CPU");
      gpus -= Get(added, "GPU");
    }
    return share;
  }

  bool BelowLimit(const Bundles& bundles) const {
    int times = options_.increase_by_times;
    Amounts added = Sum(Added(bundles, base_));
    auto below = [&](const char* name) {
      double most = times > 0 ? Get(options_.increase_by, name) * times : kInfinity;
      return Get(added, name, -kInfinity) < most;
    };
    return below("CPU") || below("GPU");
  }

 private:
  Bundles Remove(const Bundles& added, int times) const {
    if (options_.add_bundles) {
      auto keep = static_cast<std::ptrdiff_t>(added.size()) - times;
      return keep <= 0 ? Bundles{} : Bundles(added.begin(), added.begin() + keep);
    }
    Bundles less = added;
    for (const char* name : {"CPU", "GPU"}) less[0][name] = std::max(0.0, less[0][name] - Get(unit_, name) * times);
    return less;
  }

  DistributeResources options_;
  Bundles base_;
  Amounts unit_;
};

class ResourceChangingScheduler : public Scheduler {
 public:
  ResourceChangingScheduler(ResourceChanging options, std::unique_ptr<Scheduler> base)
      : options_(std::move(options)), base_(std::move(base)) {
    if (const auto* even = std::get_if<DistributeResources>(&options_.allocation)) {
      distribution_.emplace(*even, options_.base);
    } else if (const auto* top = std::get_if<DistributeResourcesToTopJob>(&options_.allocation)) {
      distribution_.emplace(top->distribute, options_.base);
      top_mode_ = top->mode;
    }
  }

  std::optional<Config> OnAdd(TrialNumber trial, const Config& config) override {
    Live& live = live_[trial];
    live.order = next_order_++;
    live.bundles = options_.base;
    Count(live.bundles, 1);
    by_value_.insert({live.key = Key(std::nullopt), live.order});
    trial_of_[live.order] = trial;
    return base_->OnAdd(trial, config);
  }

  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates& states) override {
    Decision decision = base_->OnResult(trial, report, states);
    if (decision.kind == Decision::Kind::kContinue) {
      if (auto bundles = NewBundles(trial, report, states)) {
        changes_[trial] = *bundles;
        decision.kind = Decision::Kind::kPause;
        decision.resources = std::move(bundles);
        base_->OnPending(trial);
      }
    }
    Live& live = live_.at(trial);
    by_value_.erase({live.key, live.order});
    by_value_.insert({live.key = Key(report.value), live.order});
    return decision;
  }

  Orders OnComplete(TrialNumber trial, const Report& report, const TrialStates& states) override {
    Forget(trial);
    return base_->OnComplete(trial, report, states);
  }
  Orders OnError(TrialNumber trial, const TrialStates& states) override {
    Forget(trial);
    return base_->OnError(trial, states);
  }
  Orders OnRemove(TrialNumber trial, const TrialStates& states) override {
    Forget(trial);
    return base_->OnRemove(trial, states);
  }
  void OnPending(TrialNumber trial) override { base_->OnPending(trial); }

  std::optional<TrialNumber> Choose(const TrialStates& states, Orders& orders) override {
    std::erase_if(changes_, [&](const auto& change) {
      if (states.Get(change.first) == TrialState::kRunning) return false;
      Live& live = live_.at(change.first);
      Count(live.bundles, -1);
      live.bundles = change.second;
      Count(live.bundles, 1);
      return true;
    });
    return base_->Choose(states, orders);
  }

  std::string Save() const override {
    Saver saver(kName);
    saver(base_->Save());
    Fields(*this, saver);
    return saver.Take();
  }
  void Load(std::string_view bytes) override {
    Loader loader(bytes, kName);
    std::string base;
    loader(base);
    Fields(*this, loader);
    loader.Finish();
    base_->Load(base);
    by_value_.clear();
    trial_of_.clear();
    for (const auto& [trial, live] : live_) {
      by_value_.insert({live.key, live.order});
      trial_of_[live.order] = trial;
    }
  }

 private:
  static constexpr std::string_view kName = "resource changing scheduler";
  struct Live {
    std::int64_t order = 0;
    Bundles bundles;
    double key = 0;  // the lowest is the best
    template <class Self, class Archive>
    static void Fields(Self& self, Archive& archive) {
      archive(self.order, self.bundles, self.key);
    }
  };
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.live_, self.changes_, self.next_order_, self.cpus_, self.gpus_);
  }

  // Ray takes a missing value as infinite, so that trials without a result are the best ones if the mode is max.
  double Key(std::optional<double> value) const {
    double number = value.value_or(kInfinity);
    if (std::isnan(number)) return kInfinity;
    return top_mode_ == Mode::kMax ? -number : number;
  }

  void Count(const Bundles& bundles, double sign) {
    Amounts sum = Sum(bundles);
    cpus_ += sign * Get(sum, "CPU");
    gpus_ += sign * Get(sum, "GPU");
  }

  void Forget(TrialNumber trial) {
    auto found = live_.find(trial);
    if (found == live_.end()) return;
    Count(found->second.bundles, -1);
    by_value_.erase({found->second.key, found->second.order});
    trial_of_.erase(found->second.order);
    changes_.erase(trial);
    live_.erase(found);
  }

  std::optional<Bundles> NewBundles(TrialNumber trial, const Report& report, const TrialStates& states) const {
    const Bundles& now = live_.at(trial).bundles;
    std::optional<Bundles> wanted;
    if (const auto* function = std::get_if<AllocateResources>(&options_.allocation)) {
      if (*function) wanted = (*function)(trial, report, now);
    } else if (report.iteration >= 1) {
      wanted = distribution_->Join(options_.base, NewAdded(trial, now, states), -1);
      wanted->front().insert(options_.base[0].begin(), options_.base[0].end());  // resources of other names
    }
    if (!wanted) return std::nullopt;
    wanted = WithoutZeros(std::move(*wanted));
    return *wanted == WithoutZeros(now) ? std::nullopt : wanted;
  }

  Bundles NewAdded(TrialNumber trial, const Bundles& now, const TrialStates& states) const {
    double cpus = distribution_->Available(states, "CPU");
    double gpus = distribution_->Available(states, "GPU");
    Bundles added = distribution_->Added(now, options_.base);
    int fits = distribution_->Fits(cpus - cpus_, gpus - gpus_);
    if (!top_mode_) return distribution_->Change(added, fits, distribution_->EvenShare(cpus, gpus, live_.size()));
    // Others only give back.
    if (trial != Top() && fits >= 0) return added;
    return distribution_->Change(added, fits, -1);
  }

  // The best trial that may have more; if none may, the best trial.
  TrialNumber Top() const {
    for (const auto& [key, order] : by_value_) {
      TrialNumber trial = trial_of_.at(order);
      if (distribution_->BelowLimit(live_.at(trial).bundles)) return trial;
    }
    return trial_of_.at(by_value_.begin()->second);
  }

  ResourceChanging options_;
  std::unique_ptr<Scheduler> base_;
  std::optional<Distribution> distribution_;
  std::optional<Mode> top_mode_;
  std::map<TrialNumber, Live> live_;
  std::map<std::int64_t, TrialNumber> trial_of_;
  std::set<std::pair<double, std::int64_t>> by_value_;
  std::map<TrialNumber, Bundles> changes_;  // decided, but the trial was still running
  std::int64_t next_order_ = 0;
  double cpus_ = 0;  // of all live trials
  double gpus_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(ResourceChanging options, std::unique_ptr<Scheduler> base) {
  if (!base) base = MakeScheduler(Fifo{});
  return std::make_unique<ResourceChangingScheduler>(std::move(options), std::move(base));
}

}  // namespace manta::tune
