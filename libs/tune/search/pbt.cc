// Population based training: how a configuration is perturbed.
#include <algorithm>
#include <cmath>

#include "tune/search/archive.h"
#include "tune/search/encoding.h"
#include "tune/search/population.h"

namespace manta::tune {
namespace {

std::optional<double> AsNumber(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

// 1 and 1.0 are the same, as in Python.
bool Same(const Value& a, const Value& b) {
  auto x = AsNumber(a);
  auto y = AsNumber(b);
  return x && y ? *x == *y : a == b;
}

// A parameter keeps its type: a batch size stays a whole number. Halves are rounded to even, as in Python.
Value WithTypeOf(const Value& old, Value value) {
  auto number = AsNumber(value);
  if (!number) return value;
  if (std::holds_alternative<bool>(old)) return *number != 0;
  if (std::holds_alternative<std::int64_t>(old)) return static_cast<std::int64_t>(std::nearbyint(*number));
  return value;
}

Value Draw(const std::string& path, const Mutation& mutation, Stream& random) {
  if (const auto* list = std::get_if<std::vector<Value>>(&mutation)) {
    return (*list)[random.Below(static_cast<std::uint32_t>(list->size()))];
  }
  if (const auto* function = std::get_if<std::function<Value()>>(&mutation)) return (*function)();
  Encoding encoding(Space(std::vector<Space::Parameter>{{path, std::get<Domain>(mutation)}}));
  std::vector<double> unit(encoding.size());
  for (double& coordinate : unit) coordinate = random.Uniform();
  return encoding.Decode(unit).at(path);
}

class PbtScheduler : public Population {
 public:
  explicit PbtScheduler(Pbt options)
      : Population({.mode = options.mode,
                    .perturbation_interval = options.perturbation_interval,
                    .burn_in_period = options.burn_in_period,
                    .quantile_fraction = options.quantile_fraction,
                    .custom_explore = std::move(options.custom_explore),
                    .log_config = options.log_config,
                    .require_attrs = options.require_attrs,
                    .synch = options.synch,
                    .seed = options.seed}),
        mutations_(std::move(options.mutations)),
        factors_(std::move(options.perturbation_factors)),
        resample_(options.resample_probability) {
    if (mutations_.empty() && !population_options().custom_explore) {
      throw std::invalid_argument("PBT changes nothing. Give hyperparam_mutations or custom_explore_fn.");
    }
    if (factors_.empty()) throw std::invalid_argument("perturbation_factors is empty. Give at least one factor.");
    for (const auto& [path, mutation] : mutations_) {
      const auto* list = std::get_if<std::vector<Value>>(&mutation);
      if (list != nullptr && list->empty()) {
        throw std::invalid_argument(path + ": the list of values is empty. Give at least one value.");
      }
      if (const auto* domain = std::get_if<Domain>(&mutation)) {
        if (!domain->parent.empty()) {
          throw std::invalid_argument(path + ": a mutation cannot have a condition. Leave out When.");
        }
        Space checked(std::vector<Space::Parameter>{{path, *domain}});
      }
    }
  }

  std::string Save() const override { return SaveFields(*this, "PBT"); }
  void Load(std::string_view bytes) override {
    LoadFields(*this, bytes, "PBT");
    Restore();
  }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    PopulationFields(self, archive);
  }

 protected:
  void Fill(Config& config, Stream& random) override {
    for (const auto& [path, mutation] : mutations_) {
      if (!config.contains(path)) config[path] = Draw(path, mutation, random);
    }
  }

  Config Explore(TrialNumber, TrialNumber, const Config& donor_config, Stream& random) override {
    Config config = donor_config;
    for (const auto& [path, mutation] : mutations_) {
      auto at = config.find(path);
      if (at == config.end()) {  // custom_explore removed it
        config[path] = Draw(path, mutation, random);
      } else if (const auto* list = std::get_if<std::vector<Value>>(&mutation)) {
        at->second = OfList(at->second, path, *list, random);
      } else {
        at->second = Perturbed(at->second, path, mutation, random);
      }
    }
    return config;
  }

 private:
  Value OfList(const Value& old, const std::string& path, const std::vector<Value>& list, Stream& random) const {
    auto at = std::ranges::find_if(list, [&](const Value& value) { return Same(value, old); });
    if (random.Uniform() < resample_ || at == list.end()) return Draw(path, list, random);
    bool right = random.Below(2) == 1;
    if (right) return at + 1 == list.end() ? *at : *(at + 1);
    return at == list.begin() ? *at : *(at - 1);
  }

  Value Perturbed(const Value& old, const std::string& path, const Mutation& mutation, Stream& random) const {
    auto number = AsNumber(old);
    // A word cannot be multiplied: it is always drawn again.
    if (random.Uniform() < resample_ || !number) return WithTypeOf(old, Draw(path, mutation, random));
    double factor = factors_[random.Below(static_cast<std::uint32_t>(factors_.size()))];
    return WithTypeOf(old, *number * factor);
  }

  std::vector<std::pair<std::string, Mutation>> mutations_;
  std::vector<double> factors_;
  double resample_;
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(Pbt options) { return std::make_unique<PbtScheduler>(std::move(options)); }

}  // namespace manta::tune
