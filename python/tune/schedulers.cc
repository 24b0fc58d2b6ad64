#include "schedulers.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/population.h"
#include "manta/tune/resources.h"
#include "options.h"
#include "searchers.h"

namespace manta::python {
namespace {

using tune::TrialNumber;

tune::Bundles BundlesOf(PyObject* list) {
  tune::Bundles out;
  const Held items = Must(PySequence_Fast(list, "bundles must be a list"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    out.push_back(AmountsOf(PySequence_Fast_GET_ITEM(items.get(), i)));
  return out;
}

PyObject* FromBundles(const tune::Bundles& bundles) {
  Held out = Must(PyList_New(0));
  for (const auto& bundle : bundles) {
    const Held dict = Must(PyDict_New());
    for (const auto& [name, amount] : bundle) {
      const Held number = Must(PyFloat_FromDouble(amount));
      if (PyDict_SetItemString(dict.get(), name.c_str(), number.get()) != 0) throw PythonError{};
    }
    if (PyList_Append(out.get(), dict.get()) != 0) throw PythonError{};
  }
  return out.release();
}

PyObject* FromOptional(const std::optional<double>& value) {
  return value ? PyFloat_FromDouble(*value) : Py_NewRef(Py_None);
}

// A Python function (dict) -> dict of key paths.
std::function<tune::Config(tune::Config)> ExploreOf(PyObject* function) {
  auto held = std::make_shared<Held>(Held::Share(function));
  return [held](tune::Config config) {
    const Held given = Must(FromConfig(config));
    const Held changed = Must(PyObject_CallOneArg(held->get(), given.get()));
    return ConfigOf(changed.get());
  };
}

// One of ("values", [value]), ("domain", kind, low, high, q, log, values) and ("function", callable).
tune::Mutation MutationOf(PyObject* spec, bool* foreign) {
  const std::string kind = TextOf(PyTuple_GET_ITEM(spec, 0));
  if (kind == "domain") return DomainOf(spec, 1);
  if (kind == "values") {
    std::vector<tune::Value> values;
    const Held items = Must(PySequence_Fast(PyTuple_GET_ITEM(spec, 1), "values must be a list"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
      values.push_back(ValueOf(PySequence_Fast_GET_ITEM(items.get(), i)));
    return values;
  }
  *foreign = true;
  auto held = std::make_shared<Held>(Held::Share(PyTuple_GET_ITEM(spec, 1)));
  return std::function<tune::Value()>([held] {
    const Held value = Must(PyObject_CallNoArgs(held->get()));
    return ValueOf(value.get());
  });
}

template <typename T>
void ReadPopulation(Options& given, T& options, bool* foreign) {
  given.Read("mode", options.mode);
  given.Read("perturbation_interval", options.perturbation_interval);
  given.Read("quantile_fraction", options.quantile_fraction);
  given.Read("log_config", options.log_config);
  given.Read("require_attrs", options.require_attrs);
  given.Read("synch", options.synch);
  given.Read("seed", options.seed);
  if (PyObject* function = given.Find("custom_explore")) {
    *foreign = true;
    options.custom_explore = ExploreOf(function);
  }
}

tune::Pbt PbtOf(Options& given, bool* foreign) {
  tune::Pbt options;
  ReadPopulation(given, options, foreign);
  given.Read("burn_in_period", options.burn_in_period);
  given.Read("resample_probability", options.resample_probability);
  given.Read("perturbation_factors", options.perturbation_factors);
  given.ForEach("mutations", [&](PyObject* pair) {
    options.mutations.emplace_back(TextOf(PyTuple_GET_ITEM(pair, 0)), MutationOf(PyTuple_GET_ITEM(pair, 1), foreign));
  });
  return options;
}

tune::Pb2 Pb2Of(Options& given, bool* foreign) {
  tune::Pb2 options;
  ReadPopulation(given, options, foreign);
  given.ForEach("bounds", [&](PyObject* row) {
    options.bounds.emplace_back(TextOf(PyTuple_GET_ITEM(row, 0)),
                                std::pair(NumberOf(PyTuple_GET_ITEM(row, 1)), NumberOf(PyTuple_GET_ITEM(row, 2))));
  });
  return options;
}

template <typename T>
T BandOf(Options& given) {
  T options;
  given.Read("mode", options.mode);
  given.Read("max_t", options.max_t);
  given.Read("reduction_factor", options.reduction_factor);
  given.Read("stop_last_trials", options.stop_last_trials);
  return options;
}

tune::DistributeResources DistributeOf(Options& given) {
  tune::DistributeResources options;
  given.Read("add_bundles", options.add_bundles);
  given.Read("increase_by", options.increase_by);
  given.Read("increase_by_times", options.increase_by_times);
  given.Read("reserve_resources", options.reserve_resources);
  return options;
}

std::unique_ptr<tune::Scheduler> ResourceChangingOf(Options& given, bool* foreign) {
  tune::ResourceChanging options;
  if (PyObject* bundles = given.Find("bundles")) options.base = BundlesOf(bundles);
  if (PyObject* function = given.Find("allocate")) {
    *foreign = true;
    auto held = std::make_shared<Held>(Held::Share(function));
    options.allocation = [held](TrialNumber trial, const tune::Report&,
                                const tune::Bundles& now) -> std::optional<tune::Bundles> {
      const Held bundles = Must(FromBundles(now));
      const Held answer = Must(PyObject_CallFunction(held->get(), "LO", static_cast<long long>(trial), bundles.get()));
      if (answer.get() == Py_None) return std::nullopt;
      return BundlesOf(answer.get());
    };
  } else {
    bool top = false;
    given.Read("top_job", top);
    tune::DistributeResourcesToTopJob job;
    job.distribute = DistributeOf(given);
    given.Read("mode", job.mode);
    if (top) {
      options.allocation = job;
    } else {
      options.allocation = job.distribute;
    }
  }
  bool inner = false;
  PyObject* base = given.Find("base");
  std::unique_ptr<tune::Scheduler> wrapped =
      base == nullptr ? MakeScheduler(tune::Fifo{}) : SchedulerFrom(base, &inner);
  *foreign = *foreign || inner;
  given.Done("resource_changing");
  return MakeScheduler(std::move(options), std::move(wrapped));
}

std::unique_ptr<tune::Scheduler> Make(const std::string& kind, Options& given, bool* foreign) {
  if (kind == "fifo") return MakeScheduler(tune::Fifo{});
  if (kind == "asha") {
    auto options = BandOf<tune::Asha>(given);
    given.Read("grace_period", options.grace_period);
    given.Read("brackets", options.brackets);
    given.Read("seed", options.seed);
    given.Read("promote", options.promote);
    given.Done(kind);
    return MakeScheduler(options);
  }
  if (kind == "median") {
    tune::MedianStopping options;
    given.Read("mode", options.mode);
    given.Read("grace_period", options.grace_period);
    given.Read("min_samples_required", options.min_samples_required);
    given.Read("min_time_slice", options.min_time_slice);
    given.Read("hard_stop", options.hard_stop);
    given.Done(kind);
    return MakeScheduler(options);
  }
  if (kind == "hyperband") {
    const auto options = BandOf<tune::HyperBand>(given);
    given.Done(kind);
    return MakeScheduler(options);
  }
  if (kind == "hyperband_bohb") {
    const auto options = BandOf<tune::HyperBandForBohb>(given);
    given.Done(kind);
    return MakeScheduler(options);
  }
  if (kind == "pbt") {
    auto options = PbtOf(given, foreign);
    given.Done(kind);
    return MakeScheduler(std::move(options));
  }
  if (kind == "pb2") {
    auto options = Pb2Of(given, foreign);
    given.Done(kind);
    return MakeScheduler(std::move(options));
  }
  if (kind == "pbt_replay") {
    tune::PbtReplay options;
    given.Read("policy", options.policy);
    given.Done(kind);
    return MakeScheduler(options);
  }
  if (kind == "resource_changing") return ResourceChangingOf(given, foreign);
  PyErr_Format(PyExc_NotImplementedError, "the native scheduler \"%s\" is not part of this build", kind.c_str());
  throw PythonError{};
}

// Calls a Python object. The GIL is held: a run with such a scheduler keeps it.
class Foreign final : public tune::Scheduler {
 public:
  explicit Foreign(PyObject* object) : object_(Held::Share(object)) {}

  std::optional<tune::Config> OnAdd(TrialNumber trial, const tune::Config&) override {
    Must(PyObject_CallMethod(object_.get(), "on_add", "L", static_cast<long long>(trial)));
    return std::nullopt;
  }
  tune::Decision OnResult(TrialNumber trial, const tune::Report& report, const tune::TrialStates&) override {
    const Held time = Must(FromOptional(report.time));
    const Held value = Must(FromOptional(report.value));
    const Held answer = Must(
        PyObject_CallMethod(object_.get(), "on_result", "LOO", static_cast<long long>(trial), time.get(), value.get()));
    const long kind = PyLong_AsLong(answer.get());
    if (kind == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
    tune::Decision decision;
    decision.kind = kind == 1   ? tune::Decision::Kind::kPause
                    : kind == 2 ? tune::Decision::Kind::kStop
                                : tune::Decision::Kind::kContinue;
    return decision;
  }
  tune::Orders OnComplete(TrialNumber trial, const tune::Report&, const tune::TrialStates&) override {
    return OrdersOf("on_complete", trial);
  }
  tune::Orders OnError(TrialNumber trial, const tune::TrialStates&) override { return OrdersOf("on_error", trial); }
  tune::Orders OnRemove(TrialNumber trial, const tune::TrialStates&) override { return OrdersOf("on_remove", trial); }
  std::optional<TrialNumber> Choose(const tune::TrialStates&, tune::Orders&) override {
    const Held answer = Must(PyObject_CallMethod(object_.get(), "choose", nullptr));
    if (answer.get() == Py_None) return std::nullopt;
    const long long trial = PyLong_AsLongLong(answer.get());
    if (trial == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
    return trial;
  }
  std::string Save() const override { return {}; }
  void Load(std::string_view) override {}

 private:
  tune::Orders OrdersOf(const char* method, TrialNumber trial) {
    Must(PyObject_CallMethod(object_.get(), method, "L", static_cast<long long>(trial)));
    return {};
  }
  Held object_;
};

}  // namespace

std::unique_ptr<tune::Scheduler> SchedulerFrom(PyObject* spec, bool* foreign) {
  *foreign = false;
  if (!PyTuple_Check(spec)) {
    *foreign = true;
    return std::make_unique<Foreign>(spec);
  }
  const char* kind = nullptr;
  PyObject* options = nullptr;
  if (!PyArg_ParseTuple(spec, "sO!", &kind, &PyDict_Type, &options)) throw PythonError{};
  Options given(options);
  return Make(kind, given, foreign);
}

}  // namespace manta::python
