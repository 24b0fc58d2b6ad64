#include "actions.h"

#include <array>

#include "manta/tune/population.h"

namespace manta::python {
namespace {

constexpr std::array kAnnounced = {"new", "restored", "retry", "paused", "terminated", "error", "warning"};
constexpr std::array kReasons = {"complete",  "user_stop",  "stopper", "time_budget",
                                 "fail_fast", "bad_metric", "broken"};

PyObject* FromOptional(const std::optional<tune::Checkpoint>& checkpoint) {
  return checkpoint ? FromCheckpoint(*checkpoint) : Py_NewRef(Py_None);
}

PyObject* FromAmounts(const std::vector<tune::Amounts>& bundles) {
  Held out = Must(PyList_New(0));
  for (const tune::Amounts& bundle : bundles) {
    const Held dict = Must(PyDict_New());
    for (const auto& [name, amount] : bundle) {
      const Held number = Must(PyFloat_FromDouble(amount));
      if (PyDict_SetItemString(dict.get(), name.c_str(), number.get()) != 0) throw PythonError{};
    }
    if (PyList_Append(out.get(), dict.get()) != 0) throw PythonError{};
  }
  return out.release();
}

struct Maker {
  PyObject* operator()(const tune::StartTrial& action) const {
    const Held config = Must(FromConfig(action.config));
    const Held bundles = Must(FromAmounts(action.resources.bundles));
    const Held checkpoint = Must(FromOptional(action.checkpoint));
    return Py_BuildValue("sLOOsOL", "start", static_cast<long long>(action.trial), config.get(), bundles.get(),
                         action.resources.strategy.c_str(), checkpoint.get(),
                         static_cast<long long>(action.next_checkpoint));
  }
  PyObject* operator()(const tune::ContinueTrial& action) const { return Plain("continue", action.trial); }
  PyObject* operator()(const tune::SaveTrial& action) const { return Plain("save", action.trial); }
  PyObject* operator()(const tune::PauseTrial& action) const { return Plain("pause", action.trial); }
  PyObject* operator()(const tune::LogResult& action) const { return Plain("log", action.trial); }
  PyObject* operator()(const tune::ExploitTrial& action) const {
    const Held config = Must(FromConfig(action.config));
    const Held checkpoint = Must(FromOptional(action.checkpoint));
    return Py_BuildValue("sLLOOL", "exploit", static_cast<long long>(action.trial),
                         static_cast<long long>(action.donor), config.get(), checkpoint.get(),
                         static_cast<long long>(action.next_checkpoint));
  }
  PyObject* operator()(const tune::StopTrial& action) const {
    return Py_BuildValue("sLO", "stop", static_cast<long long>(action.trial), action.keep_process ? Py_True : Py_False);
  }
  // Tags are trial numbers here; Python knows the names of the files.
  PyObject* operator()(const tune::LogPolicy& action) const {
    const std::string text =
        tune::PolicyJson(action.line, std::to_string(action.line.trial), std::to_string(action.line.donor));
    return Py_BuildValue("sLLs", "policy", static_cast<long long>(action.line.trial),
                         static_cast<long long>(action.line.donor), text.c_str());
  }
  PyObject* operator()(const tune::DropCheckpoint& action) const {
    return Py_BuildValue("sLs", "drop", static_cast<long long>(action.trial), action.path.c_str());
  }
  PyObject* operator()(const tune::Announce& action) const {
    const Held text = Must(FromText(action.text));
    return Py_BuildValue("sLsO", "announce", static_cast<long long>(action.trial),
                         kAnnounced.at(static_cast<std::size_t>(action.kind)), text.get());
  }
  PyObject* operator()(const tune::EndRun& action) const {
    const Held text = Must(FromText(action.text));
    return Py_BuildValue("sisO", "end", -1, kReasons.at(static_cast<std::size_t>(action.reason)), text.get());
  }

 private:
  static PyObject* Plain(const char* name, tune::TrialNumber trial) {
    return Py_BuildValue("sL", name, static_cast<long long>(trial));
  }
};

}  // namespace

PyObject* FromCheckpoint(const tune::Checkpoint& checkpoint) {
  return Py_BuildValue("sLLd", checkpoint.path.c_str(), static_cast<long long>(checkpoint.index),
                       static_cast<long long>(checkpoint.iteration), checkpoint.time_total);
}

std::optional<tune::Checkpoint> CheckpointOf(PyObject* tuple) {
  if (tuple == Py_None) return std::nullopt;
  const char* path = nullptr;
  long long index = 0;
  long long iteration = 0;
  double time_total = 0;
  if (!PyArg_ParseTuple(tuple, "sLLd", &path, &index, &iteration, &time_total)) throw PythonError{};
  return tune::Checkpoint{path, index, iteration, time_total};
}

PyObject* FromActions(const std::vector<tune::Action>& actions) {
  Held out = Must(PyList_New(0));
  for (const tune::Action& action : actions) {
    // A result is logged by Run.results; an answer to a result is implied by the absence of another action.
    if (std::holds_alternative<tune::LogResult>(action)) continue;
    const Held item = Must(std::visit(Maker{}, action));
    if (PyList_Append(out.get(), item.get()) != 0) throw PythonError{};
  }
  return out.release();
}

}  // namespace manta::python
