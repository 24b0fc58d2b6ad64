#include "run.h"

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actions.h"
#include "rules.h"
#include "schedulers.h"
#include "searchers.h"
#include "trial_files.h"
#include "tune/journal/run_log.h"
#include "tune/trials/controller.h"

namespace manta::python {
namespace {

using tune::TrialNumber;

// What a Python object of the type holds. Only the thread of the run calls it.
struct Run {
  std::unique_ptr<tune::trials::Controller> controller;
  std::unique_ptr<tune::journal::RunLog> log;
  std::unordered_map<TrialNumber, std::unique_ptr<TrialFiles>> files;
  LoggerKinds kinds;
  bool python = false;  // Python code takes part in decisions: the GIL is kept
  Held on_full;         // called with a text when the disk is full
};

struct RunObject {
  PyObject_HEAD Run* run;
};

Run& Of(PyObject* self) { return *reinterpret_cast<RunObject*>(self)->run; }

// Runs `body` without the GIL unless the run needs it.
template <typename Body>
void Free(const Run& run, Body body) {
  if (run.python) {
    body();
    return;
  }
  std::exception_ptr failed;
  Py_BEGIN_ALLOW_THREADS;
  try {
    body();
  } catch (...) {
    failed = std::current_exception();
  }
  Py_END_ALLOW_THREADS;
  if (failed) std::rethrow_exception(failed);
}

// Waits until `write` succeeds; it returns false while the disk is full. Ctrl-C ends the wait.
template <typename Write>
void UntilWritten(Run& run, Write write) {
  bool announced = false;
  std::string why;
  while (!write(why)) {
    if (!announced && run.on_full) {
      const Held text = Must(FromText(why));
      Must(PyObject_CallOneArg(run.on_full.get(), text.get()));
    }
    announced = true;
    Py_BEGIN_ALLOW_THREADS;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() != 0) throw PythonError{};
  }
}

void Commit(Run& run) {
  UntilWritten(run, [&](std::string& why) {
    if (run.log->Commit()) return true;
    why = run.log->journal().why();
    return false;
  });
}

void Apply(Run& run, const tune::Event& event, std::vector<tune::Action>& out) {
  run.log->Record(event);
  std::vector<tune::Action> actions = run.controller->Step(event);
  run.log->RecordMade(run.controller->made());
  for (tune::Action& action : actions) out.push_back(std::move(action));
}

template <typename Body>
PyObject* Step(PyObject* self, double now, Body body) {
  return Guarded([&]() -> PyObject* {
    Run& run = Of(self);
    std::vector<tune::Action> actions;
    Free(run, [&] { Apply(run, tune::Event{now, std::move(body)}, actions); });
    Commit(run);
    return FromActions(actions);
  });
}

// ---- making and restoring ----

// Run(rules, searcher, scheduler, thresholds, resources_of, loggers)
int Init(PyObject* self, PyObject* args, PyObject*) {
  PyObject* rules = nullptr;
  PyObject* searcher = nullptr;
  PyObject* scheduler = nullptr;
  PyObject* thresholds = nullptr;
  PyObject* resources_of = nullptr;
  int csv = 1;
  int json = 1;
  int tensorboard = 1;
  if (!PyArg_ParseTuple(args, "O!OOO!O(ppp)", &PyDict_Type, &rules, &searcher, &scheduler, &PyDict_Type, &thresholds,
                        &resources_of, &csv, &json, &tensorboard))
    return -1;
  auto* object = reinterpret_cast<RunObject*>(self);
  PyObject* done = Guarded([&]() -> PyObject* {
    auto run = std::make_unique<Run>();
    tune::trials::RunRules read = RulesOf(rules);
    auto search = SearcherFrom(searcher, &read.foreign_searcher);
    auto schedule = SchedulerFrom(scheduler, &read.foreign_scheduler);
    run->python = read.foreign_searcher || read.foreign_scheduler || resources_of != Py_None;
    auto stopper =
        PyDict_Size(thresholds) == 0 ? tune::trials::StopNever() : tune::trials::StopAtThreshold(AmountsOf(thresholds));
    run->controller = std::make_unique<tune::trials::Controller>(std::move(read), std::move(search),
                                                                 std::move(schedule), std::move(stopper));
    if (resources_of != Py_None) {
      auto function = std::make_shared<Held>(Held::Share(resources_of));
      run->controller->SetResourcesOf([function](const tune::Config& config) {
        const Held given = Must(FromConfig(config));
        const Held answer = Must(PyObject_CallOneArg(function->get(), given.get()));
        return ResourcesOf(answer.get());
      });
    }
    run->kinds = {csv != 0, json != 0, tensorboard != 0};
    delete object->run;
    object->run = run.release();
    return Py_NewRef(Py_None);
  });
  if (done == nullptr) return -1;
  Py_DECREF(done);
  return 0;
}

// create(path, description, on_full)
PyObject* Create(PyObject* self, PyObject* args) {
  const char* path = nullptr;
  PyObject* description = nullptr;
  PyObject* on_full = nullptr;
  if (!PyArg_ParseTuple(args, "sO!O", &path, &PyDict_Type, &description, &on_full)) return nullptr;
  return Guarded([&] {
    Run& run = Of(self);
    run.on_full = Held::Share(on_full);
    run.log = tune::journal::RunLog::Create(path, DescriptionOf(description));
    return Py_NewRef(Py_None);
  });
}

// restore(path, description, on_full): replays the journal
PyObject* Restore(PyObject* self, PyObject* args) {
  const char* path = nullptr;
  PyObject* description = nullptr;
  PyObject* on_full = nullptr;
  if (!PyArg_ParseTuple(args, "sO!O", &path, &PyDict_Type, &description, &on_full)) return nullptr;
  return Guarded([&] {
    Run& run = Of(self);
    run.on_full = Held::Share(on_full);
    const tune::journal::Description expected = DescriptionOf(description);
    Free(run, [&] { run.log = tune::journal::RunLog::Restore(path, expected, *run.controller); });
    return PyFloat_FromDouble(run.log->last_time());
  });
}

// ---- events; each returns the actions ----

bool ReadTwo(PyObject* args, double* now, long long* trial) { return PyArg_ParseTuple(args, "dL", now, trial) != 0; }

PyObject* Started(PyObject* self, PyObject* args) {
  double now = 0;
  long long trial = 0;
  if (!ReadTwo(args, &now, &trial)) return nullptr;
  return Step(self, now, tune::TrialStarted{trial});
}

PyObject* Finished(PyObject* self, PyObject* args) {
  double now = 0;
  long long trial = 0;
  if (!ReadTwo(args, &now, &trial)) return nullptr;
  return Step(self, now, tune::TrialFinished{trial});
}

// saved(now, trial, checkpoint or None)
PyObject* Saved(PyObject* self, PyObject* args) {
  double now = 0;
  long long trial = 0;
  PyObject* checkpoint = nullptr;
  if (!PyArg_ParseTuple(args, "dLO", &now, &trial, &checkpoint)) return nullptr;
  tune::TrialSaved event{trial, {}};
  PyObject* read = Guarded([&] {
    event.checkpoint = CheckpointOf(checkpoint);
    return Py_NewRef(Py_None);
  });
  if (read == nullptr) return nullptr;
  Py_DECREF(read);
  return Step(self, now, std::move(event));
}

// failed(now, trial, kind, text)
PyObject* Failed(PyObject* self, PyObject* args) {
  double now = 0;
  long long trial = 0;
  int kind = 0;
  const char* text = nullptr;
  if (!PyArg_ParseTuple(args, "dLis", &now, &trial, &kind, &text)) return nullptr;
  return Step(self, now, tune::TrialFailed{trial, static_cast<tune::FailureKind>(kind), text});
}

// resources(now, amounts)
PyObject* Resources(PyObject* self, PyObject* args) {
  double now = 0;
  PyObject* amounts = nullptr;
  if (!PyArg_ParseTuple(args, "dO!", &now, &PyDict_Type, &amounts)) return nullptr;
  tune::ResourcesChanged event;
  PyObject* read = Guarded([&] {
    event.capacity = AmountsOf(amounts);
    return Py_NewRef(Py_None);
  });
  if (read == nullptr) return nullptr;
  Py_DECREF(read);
  return Step(self, now, std::move(event));
}

PyObject* TickAt(PyObject* self, PyObject* number) {
  const double now = PyFloat_AsDouble(number);
  if (now == -1.0 && PyErr_Occurred() != nullptr) return nullptr;
  return Step(self, now, tune::Tick{});
}

// stop(now, trial): trial < 0: all
PyObject* Stop(PyObject* self, PyObject* args) {
  double now = 0;
  long long trial = 0;
  if (!ReadTwo(args, &now, &trial)) return nullptr;
  tune::UserStop event;
  if (trial >= 0) event.trial = trial;
  return Step(self, now, event);
}

// restored(now, resume_unfinished, resume_errored, restart_errored, more_samples)
PyObject* Restored(PyObject* self, PyObject* args) {
  double now = 0;
  int unfinished = 1;
  int errored = 0;
  int restart = 0;
  long long more = 0;
  if (!PyArg_ParseTuple(args, "dpppL", &now, &unfinished, &errored, &restart, &more)) return nullptr;
  return Step(self, now, tune::RunRestored{unfinished != 0, errored != 0, restart != 0, more});
}

// ---- results ----

TrialFiles& FilesOf(Run& run, TrialNumber trial) {
  const auto found = run.files.find(trial);
  if (found == run.files.end()) throw std::invalid_argument("trial " + std::to_string(trial) + " is not open");
  return *found->second;
}

// open_trial(trial, folder, config, facts)
PyObject* OpenTrial(PyObject* self, PyObject* args) {
  long long trial = 0;
  const char* folder = nullptr;
  PyObject* config = nullptr;
  PyObject* facts = nullptr;
  if (!PyArg_ParseTuple(args, "LsO!O!", &trial, &folder, &PyDict_Type, &config, &PyDict_Type, &facts)) return nullptr;
  return Guarded([&] {
    Run& run = Of(self);
    auto files = std::make_unique<TrialFiles>(trial, folder, config, run.kinds);
    files->SetFacts(facts);
    run.files[trial] = std::move(files);
    return Py_NewRef(Py_None);
  });
}

// begin_trial(trial, process facts, iteration, time_total, timestamp)
PyObject* BeginTrial(PyObject* self, PyObject* args) {
  long long trial = 0;
  PyObject* facts = nullptr;
  long long iteration = 0;
  double time_total = 0;
  double timestamp = 0;
  if (!PyArg_ParseTuple(args, "LO!Ldd", &trial, &PyDict_Type, &facts, &iteration, &time_total, &timestamp))
    return nullptr;
  return Guarded([&] {
    FilesOf(Of(self), trial).Begin(facts, iteration, time_total, timestamp);
    return Py_NewRef(Py_None);
  });
}

// complete(trial, results, times, {position: name of a checkpoint}): adds the automatic keys to each result
PyObject* CompleteResults(PyObject* self, PyObject* args) {
  long long trial = 0;
  PyObject* results = nullptr;
  PyObject* times = nullptr;
  PyObject* saved = nullptr;
  if (!PyArg_ParseTuple(args, "LO!O!O!", &trial, &PyList_Type, &results, &PyList_Type, &times, &PyDict_Type, &saved))
    return nullptr;
  return Guarded([&] {
    TrialFiles& files = FilesOf(Of(self), trial);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(results); ++i) {
      PyObject* name = nullptr;
      if (PyDict_Size(saved) > 0) {
        const Held position = Must(PyLong_FromSsize_t(i));
        name = PyDict_GetItem(saved, position.get());
      }
      files.Complete(PyList_GET_ITEM(results, i), NumberOf(PyList_GET_ITEM(times, i)), name);
    }
    return Py_NewRef(Py_None);
  });
}

bool Concerns(const std::vector<tune::Action>& actions, std::size_t from, TrialNumber trial) {
  for (std::size_t i = from; i < actions.size(); ++i) {
    if (const auto* stop = std::get_if<tune::StopTrial>(&actions[i]); stop != nullptr && stop->trial == trial)
      return true;
    if (const auto* pause = std::get_if<tune::PauseTrial>(&actions[i]); pause != nullptr && pause->trial == trial)
      return true;
    if (const auto* exploit = std::get_if<tune::ExploitTrial>(&actions[i]);
        exploit != nullptr && exploit->trial == trial)
      return true;
    if (const auto* save = std::get_if<tune::SaveTrial>(&actions[i]); save != nullptr && save->trial == trial)
      return true;
  }
  return false;
}

// results(now, trial, started, [result], {position: checkpoint}, stops) -> (actions, how many were taken)
//
// `started`: the first results of a process. `stops`: (position, all) of the first result at which a user-written
// stopper ends the trial or the run, or None. Results after one that ends the trial are not taken.
PyObject* Results(PyObject* self, PyObject* args) {
  double now = 0;
  long long trial = 0;
  int started = 0;
  PyObject* results = nullptr;
  PyObject* saved = nullptr;
  Py_ssize_t stop_at = -1;
  int stop_all = 0;
  if (!PyArg_ParseTuple(args, "dLpO!O!np", &now, &trial, &started, &PyList_Type, &results, &PyDict_Type, &saved,
                        &stop_at, &stop_all))
    return nullptr;
  return Guarded([&]() -> PyObject* {
    Run& run = Of(self);
    TrialFiles& files = FilesOf(run, trial);
    std::vector<Row> rows;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(results); ++i) {
      rows.push_back(files.Read(PyList_GET_ITEM(results, i)));
      if (PyDict_Size(saved) > 0) {
        const Held position = Must(PyLong_FromSsize_t(i));
        if (PyObject* checkpoint = PyDict_GetItem(saved, position.get()))
          rows.back().event.checkpoint = CheckpointOf(checkpoint);
      }
      if (i == stop_at) (stop_all != 0 ? rows.back().event.stop_all : rows.back().event.stop) = true;
    }
    std::vector<tune::Action> actions;
    std::vector<bool> logged;
    Free(run, [&] {
      if (started != 0) Apply(run, tune::Event{now, tune::TrialStarted{trial}}, actions);
      for (Row& row : rows) {
        const std::size_t before = actions.size();
        Apply(run, tune::Event{now, row.event}, actions);
        bool log = false;
        for (std::size_t i = before; i < actions.size(); ++i)
          log = log || std::holds_alternative<tune::LogResult>(actions[i]);
        logged.push_back(log);
        if (Concerns(actions, before, trial)) break;
      }
    });
    Commit(run);
    Free(run, [&] {
      for (std::size_t i = 0; i < logged.size(); ++i) {
        if (logged[i]) files.Write(rows[i]);
      }
    });
    const Held marks = Must(PyList_New(0));
    for (const bool log : logged) {
      if (PyList_Append(marks.get(), log ? Py_True : Py_False) != 0) throw PythonError{};
    }
    // The answer to a result is implied by the absence of another action.
    std::erase_if(actions,
                  [](const tune::Action& action) { return std::holds_alternative<tune::ContinueTrial>(action); });
    const Held list = Must(FromActions(actions));
    return PyTuple_Pack(2, list.get(), marks.get());
  });
}

// log(trial, [result]): writes results that are in the journal already
PyObject* Log(PyObject* self, PyObject* args) {
  long long trial = 0;
  PyObject* results = nullptr;
  if (!PyArg_ParseTuple(args, "LO!", &trial, &PyList_Type, &results)) return nullptr;
  return Guarded([&] {
    TrialFiles& files = FilesOf(Of(self), trial);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(results); ++i) files.Write(files.Read(PyList_GET_ITEM(results, i)));
    return Py_NewRef(Py_None);
  });
}

// results_after(path, {trial: iteration}) -> {trial: [(metrics, iteration, time_total, checkpoint)]}: of the journal
PyObject* ResultsAfter(PyObject*, PyObject* args) {
  const char* path = nullptr;
  PyObject* wanted = nullptr;
  if (!PyArg_ParseTuple(args, "sO!", &path, &PyDict_Type, &wanted)) return nullptr;
  return Guarded([&]() -> PyObject* {
    std::unordered_map<TrialNumber, std::int64_t> after;
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(wanted, &at, &key, &value) != 0) after[PyLong_AsLongLong(key)] = PyLong_AsLongLong(value);
    if (PyErr_Occurred() != nullptr) return nullptr;
    Held out = Must(PyDict_New());
    tune::journal::RunLog::Read(path, [&](const tune::Event& event, const std::vector<tune::Made>&) {
      const auto* result = std::get_if<tune::TrialResult>(&event.body);
      if (result == nullptr) return;
      const auto found = after.find(result->trial);
      if (found == after.end() || result->iteration <= found->second) return;
      found->second = result->iteration;
      const Held number = Must(PyLong_FromLongLong(result->trial));
      const Held empty = Must(PyList_New(0));
      PyObject* list = PyDict_SetDefault(out.get(), number.get(), empty.get());
      const Held metrics = Must(FromConfig(result->metrics));
      const Held checkpoint = Must(result->checkpoint ? FromCheckpoint(*result->checkpoint) : Py_NewRef(Py_None));
      const Held row = Must(Py_BuildValue("OLdO", metrics.get(), static_cast<long long>(result->iteration),
                                          result->time_total, checkpoint.get()));
      if (list == nullptr || PyList_Append(list, row.get()) != 0) throw PythonError{};
    });
    return out.release();
  });
}

// flush(trial)
PyObject* Flush(PyObject* self, PyObject* number) {
  const long long trial = PyLong_AsLongLong(number);
  if (trial == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return Guarded([&] {
    Run& run = Of(self);
    const auto found = run.files.find(trial);
    if (found != run.files.end()) UntilWritten(run, [&](std::string& why) { return found->second->Flush(why); });
    return Py_NewRef(Py_None);
  });
}

// close_trial(trial): writes what is left and closes its files
PyObject* CloseTrial(PyObject* self, PyObject* number) {
  const long long trial = PyLong_AsLongLong(number);
  if (trial == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return Guarded([&] {
    Run& run = Of(self);
    const auto found = run.files.find(trial);
    if (found != run.files.end()) {
      found->second->End();
      UntilWritten(run, [&](std::string& why) { return found->second->Flush(why); });
      run.files.erase(found);
    }
    return Py_NewRef(Py_None);
  });
}

// ---- questions ----

// trial(number) -> (status, config, iteration, time_total, last metrics, [checkpoint], error, failures)
PyObject* TrialOf(PyObject* self, PyObject* number) {
  const long long trial = PyLong_AsLongLong(number);
  if (trial == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return Guarded([&]() -> PyObject* {
    const tune::trials::Trial& found = Of(self).controller->trial(trial);
    const Held config = Must(FromConfig(found.config));
    const Held last = Must(FromConfig(found.last));
    const Held checkpoints = Must(PyList_New(0));
    for (const auto& kept : found.checkpoints) {
      const Held item = Must(FromCheckpoint(kept.checkpoint));
      if (PyList_Append(checkpoints.get(), item.get()) != 0) return nullptr;
    }
    return Py_BuildValue("sOLdOOsi", tune::trials::NameOf(found.status), config.get(),
                         static_cast<long long>(found.iteration), found.time_total, last.get(), checkpoints.get(),
                         found.error.c_str(), found.failures);
  });
}

// counts() -> (pending, running, paused, terminated, error, results, retries)
PyObject* Counts(PyObject* self, PyObject*) {
  const tune::trials::Counts& counts = Of(self).controller->counts();
  return Py_BuildValue("LLLLLLL", static_cast<long long>(counts.pending), static_cast<long long>(counts.running),
                       static_cast<long long>(counts.paused), static_cast<long long>(counts.terminated),
                       static_cast<long long>(counts.error), static_cast<long long>(counts.results),
                       static_cast<long long>(counts.retries));
}

PyObject* Size(PyObject* self, PyObject*) { return PyLong_FromSize_t(Of(self).controller->trials().size()); }

PyObject* Best(PyObject* self, PyObject*) {
  const std::optional<TrialNumber> best = Of(self).controller->best();
  return best ? PyLong_FromLongLong(*best) : Py_NewRef(Py_None);
}

PyObject* NextTick(PyObject* self, PyObject*) { return PyFloat_FromDouble(Of(self).controller->next_tick()); }

PyObject* FirstPending(PyObject* self, PyObject*) {
  const std::optional<TrialNumber> first = Of(self).controller->FirstPending();
  return first ? PyLong_FromLongLong(*first) : Py_NewRef(Py_None);
}

PyObject* FirstPaused(PyObject* self, PyObject*) {
  const std::optional<TrialNumber> first = Of(self).controller->FirstPaused();
  return first ? PyLong_FromLongLong(*first) : Py_NewRef(Py_None);
}

PyObject* SyncJournal(PyObject* self, PyObject*) {
  return Guarded([&] {
    Run& run = Of(self);
    if (!run.log) return Py_NewRef(Py_None);
    tune::journal::Journal& journal = run.log->journal();
    std::exception_ptr failed;
    Py_BEGIN_ALLOW_THREADS;
    try {
      journal.Sync();
    } catch (...) {
      failed = std::current_exception();
    }
    Py_END_ALLOW_THREADS;
    if (failed) std::rethrow_exception(failed);
    return Py_NewRef(Py_None);
  });
}

// close(): closes the journal and all files
PyObject* Close(PyObject* self, PyObject*) {
  return Guarded([&] {
    Run& run = Of(self);
    run.files.clear();
    run.log.reset();
    return Py_NewRef(Py_None);
  });
}

void Dealloc(PyObject* self) {
  delete reinterpret_cast<RunObject*>(self)->run;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"create", Create, METH_VARARGS, nullptr},
    {"restore", Restore, METH_VARARGS, nullptr},
    {"started", Started, METH_VARARGS, nullptr},
    {"finished", Finished, METH_VARARGS, nullptr},
    {"saved", Saved, METH_VARARGS, nullptr},
    {"failed", Failed, METH_VARARGS, nullptr},
    {"resources", Resources, METH_VARARGS, nullptr},
    {"tick", TickAt, METH_O, nullptr},
    {"stop", Stop, METH_VARARGS, nullptr},
    {"restored", Restored, METH_VARARGS, nullptr},
    {"open_trial", OpenTrial, METH_VARARGS, nullptr},
    {"begin_trial", BeginTrial, METH_VARARGS, nullptr},
    {"complete", CompleteResults, METH_VARARGS, nullptr},
    {"results", Results, METH_VARARGS, nullptr},
    {"log", Log, METH_VARARGS, nullptr},
    {"results_after", ResultsAfter, METH_VARARGS, nullptr},
    {"flush", Flush, METH_O, nullptr},
    {"close_trial", CloseTrial, METH_O, nullptr},
    {"trial", TrialOf, METH_O, nullptr},
    {"counts", Counts, METH_NOARGS, nullptr},
    {"size", Size, METH_NOARGS, nullptr},
    {"best", Best, METH_NOARGS, nullptr},
    {"next_tick", NextTick, METH_NOARGS, nullptr},
    {"first_pending", FirstPending, METH_NOARGS, nullptr},
    {"first_paused", FirstPaused, METH_NOARGS, nullptr},
    {"sync", SyncJournal, METH_NOARGS, nullptr},
    {"close", Close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(&PyType_GenericNew)},
                       {Py_tp_init, reinterpret_cast<void*>(&Init)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(&Dealloc)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"manta._tune.Run", sizeof(RunObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool AddRunType(PyObject* module) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddType(module, type) == 0;
}

}  // namespace manta::python
