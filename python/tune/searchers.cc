#include "searchers.h"

#include <string>

#include "manta/tune/searchers.h"
#include "options.h"

namespace manta::python {
namespace {

using tune::TrialNumber;

// ---- native searchers for Python ----

struct SearcherObject {
  PyObject_HEAD std::shared_ptr<tune::Searcher>* searcher;
  bool one_value;  // it does not learn: of several objectives it is told the first
};

PyTypeObject* searcher_type = nullptr;

tune::Domain::Kind KindOf(const std::string& name) {
  if (name == "float") return tune::Domain::Kind::kFloat;
  if (name == "int") return tune::Domain::Kind::kInt;
  if (name == "normal") return tune::Domain::Kind::kNormal;
  if (name == "choice") return tune::Domain::Kind::kChoice;
  if (name == "grid") return tune::Domain::Kind::kGrid;
  return tune::Domain::Kind::kConstant;
}

void ReadValues(PyObject* list, std::vector<tune::Value>& out) {
  if (list == Py_None) return;
  const Held items = Must(PySequence_Fast(list, "values must be a list"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    out.push_back(ValueOf(PySequence_Fast_GET_ITEM(items.get(), i)));
}

template <typename T>
void ReadCommon(Options& given, T& options) {
  given.Read("seed", options.seed);
  given.Read("mode", options.mode);
  given.Read("points_to_evaluate", options.points_to_evaluate);
}

template <typename T>
T WithRewards(Options& given) {
  T options;
  ReadCommon(given, options);
  given.Read("evaluated_rewards", options.evaluated_rewards);
  return options;
}

std::unique_ptr<tune::Searcher> Make(const std::string& kind, const tune::Space& space, Options& given) {
  if (kind == "random") {
    tune::Random options;
    ReadCommon(given, options);
    given.Read("num_samples", options.num_samples);
    given.Read("constant_grid_search", options.constant_grid_search);
    given.Read("max_concurrent", options.max_concurrent);
    given.Done(kind);
    return MakeSearcher(space, std::move(options));
  }
  if (kind == "sobol") {
    auto options = WithRewards<tune::Sobol>(given);
    given.Read("scramble", options.scramble);
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  if (kind == "halton") {
    auto options = WithRewards<tune::Halton>(given);
    given.Read("scramble", options.scramble);
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  if (kind == "tpe") {
    auto options = WithRewards<tune::Tpe>(given);
    given.Read("n_startup_trials", options.n_startup_trials);
    given.Read("n_ei_candidates", options.n_ei_candidates);
    given.Read("prior_weight", options.prior_weight);
    given.Read("constant_liar", options.constant_liar);
    given.Read("modes", options.modes);
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  if (kind == "cmaes") {
    auto options = WithRewards<tune::CmaEs>(given);
    if (PyObject* x0 = given.Find("x0")) options.x0 = ConfigOf(x0);
    given.Read("sigma0", options.sigma0);
    given.Read("population", options.population);
    given.Read("separable", options.separable);
    std::string restart = "ipop";
    given.Read("restart", restart);
    options.restart = restart == "bipop"  ? tune::CmaEs::Restart::kBipop
                      : restart == "ipop" ? tune::CmaEs::Restart::kIpop
                                          : tune::CmaEs::Restart::kNone;
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  if (kind == "gp") {
    auto options = WithRewards<tune::Gp>(given);
    given.Read("n_startup_trials", options.n_startup_trials);
    given.Read("kappa", options.kappa);
    std::string acquisition = "log_ei";
    given.Read("acquisition", acquisition);
    options.acquisition = acquisition == "lcb"        ? tune::Gp::Acquisition::kLowerBound
                          : acquisition == "pi"       ? tune::Gp::Acquisition::kProbability
                          : acquisition == "gp_hedge" ? tune::Gp::Acquisition::kHedge
                                                      : tune::Gp::Acquisition::kLogExpectedImprovement;
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  if (kind == "nsga2") {
    auto options = WithRewards<tune::Nsga2>(given);
    given.Read("modes", options.modes);
    given.Read("population", options.population);
    given.Read("crossover_probability", options.crossover_probability);
    given.Read("mutation_probability", options.mutation_probability);
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  if (kind == "bohb") {
    auto options = WithRewards<tune::Bohb>(given);
    given.Read("min_points_in_model", options.min_points_in_model);
    given.Read("top_n_percent", options.top_n_percent);
    given.Read("num_samples", options.num_samples);
    given.Read("random_fraction", options.random_fraction);
    given.Done(kind);
    return MakeSearcher(space, options);
  }
  PyErr_Format(PyExc_NotImplementedError, "the native searcher \"%s\" is not part of this build", kind.c_str());
  throw PythonError{};
}

// make_searcher(kind, parameters, options) -> Searcher
PyObject* MakeSearcherObject(PyObject*, PyObject* args) {
  const char* kind = nullptr;
  PyObject* parameters = nullptr;
  PyObject* options = nullptr;
  if (!PyArg_ParseTuple(args, "sOO!", &kind, &parameters, &PyDict_Type, &options)) return nullptr;
  return Guarded([&]() -> PyObject* {
    Options given(options);
    std::unique_ptr<tune::Searcher> made = Make(kind, SpaceOf(parameters), given);
    auto* self = PyObject_New(SearcherObject, searcher_type);
    if (self == nullptr) return nullptr;
    self->searcher = new std::shared_ptr<tune::Searcher>(std::move(made));
    const std::string name = kind;
    self->one_value = name == "random" || name == "sobol" || name == "halton";
    return reinterpret_cast<PyObject*>(self);
  });
}

// check_space(parameters): raises ValueError with the key path
PyObject* CheckSpace(PyObject*, PyObject* parameters) {
  return Guarded([&] {
    static_cast<void>(SpaceOf(parameters));
    return Py_NewRef(Py_None);
  });
}

tune::Searcher& Of(PyObject* self) { return **reinterpret_cast<SearcherObject*>(self)->searcher; }

// ask(trial) -> dict, None (wait) or False (finished)
PyObject* Ask(PyObject* self, PyObject* number) {
  const long long trial = PyLong_AsLongLong(number);
  if (trial == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return Guarded([&]() -> PyObject* {
    tune::Answer answer;
    std::exception_ptr failed;
    Py_BEGIN_ALLOW_THREADS;
    try {
      answer = Of(self).Ask(trial);
    } catch (...) {
      failed = std::current_exception();
    }
    Py_END_ALLOW_THREADS;
    if (failed) std::rethrow_exception(failed);
    if (auto* config = std::get_if<tune::Config>(&answer)) return FromConfig(*config);
    return Py_NewRef(std::holds_alternative<tune::Wait>(answer) ? Py_None : Py_False);
  });
}

// tell(trial, [value])
PyObject* Tell(PyObject* self, PyObject* args) {
  long long trial = 0;
  PyObject* list = nullptr;
  if (!PyArg_ParseTuple(args, "LO", &trial, &list)) return nullptr;
  return Guarded([&] {
    std::vector<double> values;
    const Held items = Must(PySequence_Fast(list, "tell: the values must be a list"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
      values.push_back(NumberOf(PySequence_Fast_GET_ITEM(items.get(), i)));
    Of(self).Tell(trial, values);
    return Py_NewRef(Py_None);
  });
}

// report(trial, time, value)
PyObject* Report(PyObject* self, PyObject* args) {
  long long trial = 0;
  double time = 0;
  double value = 0;
  if (!PyArg_ParseTuple(args, "Ldd", &trial, &time, &value)) return nullptr;
  return Guarded([&] {
    Of(self).Report(trial, time, value);
    return Py_NewRef(Py_None);
  });
}

PyObject* Fail(PyObject* self, PyObject* number) {
  const long long trial = PyLong_AsLongLong(number);
  if (trial == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return Guarded([&] {
    Of(self).Fail(trial);
    return Py_NewRef(Py_None);
  });
}

PyObject* Save(PyObject* self, PyObject*) {
  return Guarded([&] {
    const std::string bytes = Of(self).Save();
    return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
  });
}

PyObject* Load(PyObject* self, PyObject* bytes) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) return nullptr;
  return Guarded([&] {
    Of(self).Load({data, static_cast<std::size_t>(size)});
    return Py_NewRef(Py_None);
  });
}

void Free(PyObject* self) {
  delete reinterpret_cast<SearcherObject*>(self)->searcher;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"ask", Ask, METH_O, nullptr},   {"tell", Tell, METH_VARARGS, nullptr}, {"report", Report, METH_VARARGS, nullptr},
    {"fail", Fail, METH_O, nullptr}, {"save", Save, METH_NOARGS, nullptr},  {"load", Load, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&Free)}, {Py_tp_methods, methods}, {0, nullptr}};
PyType_Spec spec = {"manta._tune.Searcher", sizeof(SearcherObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyMethodDef functions[] = {
    {"make_searcher", MakeSearcherObject, METH_VARARGS, nullptr},
    {"check_space", CheckSpace, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// ---- searchers for a run ----

class Shared final : public tune::Searcher {
 public:
  Shared(std::shared_ptr<tune::Searcher> other, bool one_value) : other_(std::move(other)), one_value_(one_value) {}
  tune::Answer Ask(TrialNumber trial) override { return other_->Ask(trial); }
  void Report(TrialNumber trial, double time, double value) override { other_->Report(trial, time, value); }
  void Tell(TrialNumber trial, const std::vector<double>& values) override {
    other_->Tell(trial, one_value_ && values.size() > 1 ? std::vector<double>{values.front()} : values);
  }
  void Fail(TrialNumber trial) override { other_->Fail(trial); }
  std::string Save() const override { return other_->Save(); }
  void Load(std::string_view bytes) override { other_->Load(bytes); }

 private:
  std::shared_ptr<tune::Searcher> other_;
  bool one_value_;
};

// Calls a Python object. The GIL is held: a run with such a searcher keeps it.
class Foreign final : public tune::Searcher {
 public:
  explicit Foreign(PyObject* object) : object_(Held::Share(object)) {}

  tune::Answer Ask(TrialNumber trial) override {
    const Held answer = Must(PyObject_CallMethod(object_.get(), "ask", "L", static_cast<long long>(trial)));
    if (answer.get() == Py_None) return tune::Wait{};
    if (answer.get() == Py_False) return tune::Finished{};
    return ConfigOf(answer.get());
  }
  void Report(TrialNumber trial, double time, double value) override {
    Must(PyObject_CallMethod(object_.get(), "report", "Ldd", static_cast<long long>(trial), time, value));
  }
  void Tell(TrialNumber trial, const std::vector<double>& values) override {
    const Held list = Must(PyList_New(0));
    for (const double value : values) {
      const Held number = Must(PyFloat_FromDouble(value));
      if (PyList_Append(list.get(), number.get()) != 0) throw PythonError{};
    }
    Must(PyObject_CallMethod(object_.get(), "tell", "LO", static_cast<long long>(trial), list.get()));
  }
  void Fail(TrialNumber trial) override {
    Must(PyObject_CallMethod(object_.get(), "fail", "L", static_cast<long long>(trial)));
  }
  std::string Save() const override {
    const Held bytes = Must(PyObject_CallMethod(object_.get(), "save", nullptr));
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(bytes.get(), &data, &size) != 0) throw PythonError{};
    return {data, static_cast<std::size_t>(size)};
  }
  void Load(std::string_view bytes) override {
    Must(PyObject_CallMethod(object_.get(), "load", "y#", bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  }

 private:
  Held object_;
};

}  // namespace

tune::Domain DomainOf(PyObject* row, Py_ssize_t first) {
  const auto at = [&](Py_ssize_t index) { return PyTuple_GET_ITEM(row, first + index); };
  tune::Domain domain;
  domain.kind = KindOf(TextOf(at(0)));
  domain.low = NumberOf(at(1));
  domain.high = NumberOf(at(2));
  domain.q = NumberOf(at(3));
  domain.log = PyObject_IsTrue(at(4)) == 1;
  ReadValues(at(5), domain.values);
  return domain;
}

tune::Space SpaceOf(PyObject* parameters) {
  const Held rows = Must(PySequence_Fast(parameters, "the parameters must be a list"));
  std::vector<tune::Space::Parameter> out;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(rows.get()); ++i) {
    PyObject* row = PySequence_Fast_GET_ITEM(rows.get(), i);
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 9) {
      PyErr_SetString(PyExc_TypeError, "a parameter is a tuple of 9 items");
      throw PythonError{};
    }
    tune::Domain domain = DomainOf(row, 1);
    domain.parent = TextOf(PyTuple_GET_ITEM(row, 7));
    ReadValues(PyTuple_GET_ITEM(row, 8), domain.parent_values);
    out.emplace_back(TextOf(PyTuple_GET_ITEM(row, 0)), std::move(domain));
  }
  return tune::Space(std::move(out));
}

std::unique_ptr<tune::Searcher> SearcherFrom(PyObject* object, bool* foreign) {
  *foreign = Py_TYPE(object) != searcher_type;
  if (*foreign) return std::make_unique<Foreign>(object);
  auto* held = reinterpret_cast<SearcherObject*>(object);
  return std::make_unique<Shared>(*held->searcher, held->one_value);
}

bool AddSearcherTypes(PyObject* module) {
  searcher_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return searcher_type != nullptr && PyModule_AddType(module, searcher_type) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace manta::python
