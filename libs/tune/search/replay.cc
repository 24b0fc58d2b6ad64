// The replay of one trial of population based training: its configuration changes at the recorded iterations.
#include <algorithm>

#include "manta/tune/population.h"
#include "tune/search/archive.h"
#include "tune/search/policy.h"

namespace manta::tune {
namespace {

class ReplayScheduler : public Scheduler {
 public:
  explicit ReplayScheduler(const PbtReplay& options) {
    // From the end: a row whose tags do not continue the chain was overwritten by a later clone.
    auto rows = ParsePolicy(options.policy);
    std::string last_donor;
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      if (!last_donor.empty() && row->trial_tag != last_donor) break;
      last_donor = row->donor_tag;
      first_ = std::move(row->donor_config);
      changes_.emplace_back(row->donor_iteration, std::move(row->config));
    }
    std::ranges::reverse(changes_);
  }

  std::optional<Config> OnAdd(TrialNumber trial, const Config& config) override {
    if (trial_) {
      throw std::invalid_argument("a replay has one trial, but trial " + std::to_string(trial) +
                                  " was added after trial " + std::to_string(*trial_) + ". Set num_samples to 1.");
    }
    if (changes_.empty() && config.empty()) {
      throw std::invalid_argument("the policy is empty, and the trial has no configuration. Give one of the two.");
    }
    trial_ = trial;
    return changes_.empty() ? std::nullopt : std::optional(first_);
  }

  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates&) override {
    if (next_ == changes_.size() || report.iteration < changes_[next_].first) return {};
    Decision decision{Decision::Kind::kExploit};
    decision.save = true;
    decision.exploit = Exploit{trial, changes_[next_++].second};
    return decision;
  }

  std::string Save() const override { return SaveFields(*this, "PBT replay"); }
  void Load(std::string_view bytes) override { LoadFields(*this, bytes, "PBT replay"); }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.trial_, self.next_);
  }

 private:
  Config first_;
  std::vector<std::pair<std::int64_t, Config>> changes_;  // from this iteration on
  std::optional<TrialNumber> trial_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(const PbtReplay& options) {
  return std::make_unique<ReplayScheduler>(options);
}

}  // namespace manta::tune
