// The module manta._core: the engine as Python sees it. Everything that a user meets is written in Python on top of it,
// except for the hot calls (get, put, Call.__call__), which are the user's directly.
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "groups.h"
#include "manta/internal/plain_call.h"
#include "manta/manta.h"
#include "plain.h"
#include "py.h"
#include "refs.h"
#include "run.h"
#include "timeline.h"
#include "values.h"
#include "waits.h"

namespace manta::python {

Hooks hooks;
bool in_worker = false;

namespace {

// setup(**hooks)
PyObject* Setup(PyObject*, PyObject* args, PyObject* keywords) {
  const std::pair<const char*, PyObject * Hooks::*> all[] = {
      {"dumps", &Hooks::dumps},
      {"loads", &Hooks::loads},
      {"load_function", &Hooks::load_function},
      {"begin_async", &Hooks::begin_async},
      {"step_async", &Hooks::step_async},
      {"special", &Hooks::special},
      {"save_actor", &Hooks::save_actor},
      {"load_actor", &Hooks::load_actor},
      {"describe", &Hooks::describe},
      {"rebuild", &Hooks::rebuild},
      {"errors", &Hooks::errors},
      {"await_ref", &Hooks::await_ref},
      {"progress", &Hooks::progress},
      {"load_named", &Hooks::load_named},
      {"make_array", &Hooks::make_array},
      {"make_actor", &Hooks::make_actor},
      {"leaving", &Hooks::leaving},
      {"farewell", &Hooks::farewell},
      {"import_arrow", &Hooks::import_arrow},
  };
  Hooks given;
  for (const auto& [name, member] : all) {
    given.*member = keywords == nullptr ? nullptr : PyDict_GetItemString(keywords, name);
    if (given.*member == nullptr) {
      PyErr_Format(PyExc_TypeError, "setup: %s is missing", name);
      return nullptr;
    }
  }
  static_cast<void>(args);
  for (const auto& [name, member] : all) Py_INCREF(given.*member);
  hooks = given;
  Py_RETURN_NONE;
}

// init(command: [str], cpus, gpus, resources, store_bytes, spill_folder, address, space, show_output, labels, quota,
// job, resume, keep_lineage, lineage_memory)
PyObject* Init(PyObject*, PyObject* args) {
  PyObject* words = nullptr;
  PyObject* resources = nullptr;
  Config config;
  unsigned long long store_bytes = 0;
  const char* spill = nullptr;
  const char* address = nullptr;
  const char* space = nullptr;
  int show = 1;
  PyObject* labels = nullptr;
  PyObject* quota = nullptr;
  const char* job = nullptr;
  int resume = 0;
  int keep_lineage = 0;
  unsigned long long lineage_memory = 0;
  if (!PyArg_ParseTuple(args, "O!ddO!KssspO!O!sppK", &PyList_Type, &words, &config.cpus, &config.gpus, &PyDict_Type,
                        &resources, &store_bytes, &spill, &address, &space, &show, &PyDict_Type, &labels, &PyDict_Type,
                        &quota, &job, &resume, &keep_lineage, &lineage_memory))
    return nullptr;
  config.without_cpus = config.cpus < 0;  // _runtime._NO_CPUS
  if (config.without_cpus) config.cpus = 0;
  std::vector<std::string> command;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(words); ++i) {
    const char* word = PyUnicode_AsUTF8(PyList_GET_ITEM(words, i));
    if (word == nullptr) return nullptr;
    command.emplace_back(word);
  }
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(resources, &at, &key, &value) != 0) {
    const char* name = PyUnicode_AsUTF8(key);
    const double amount = PyFloat_AsDouble(value);
    if (name == nullptr || PyErr_Occurred() != nullptr) return nullptr;
    config.resources[name] = amount;
  }
  at = 0;
  while (PyDict_Next(quota, &at, &key, &value) != 0) {
    const char* name = PyUnicode_AsUTF8(key);
    const double amount = PyFloat_AsDouble(value);
    if (name == nullptr || PyErr_Occurred() != nullptr) return nullptr;
    config.quota[name] = amount;
  }
  at = 0;
  while (PyDict_Next(labels, &at, &key, &value) != 0) {
    const char* name = PyUnicode_AsUTF8(key);
    const char* text = PyUnicode_AsUTF8(value);
    if (name == nullptr || text == nullptr) return nullptr;
    config.labels[name] = text;
  }
  config.store_bytes = store_bytes;
  config.spill_folder = spill;
  config.address = address;
  config.space = space;
  config.show_output = show != 0;
  config.job = job;
  config.resume = resume != 0;
  config.keep_lineage = keep_lineage != 0;
  config.lineage_memory = lineage_memory;
  return Guard([&] {
    const NoGil free;
    internal::SetWorkerCommand(std::move(command));
    manta::Init(config);
    return Py_NewRef(Py_None);
  });
}

PyObject* Shutdown(PyObject*, PyObject*) {
  return Guard([&] {
    const NoGil free;
    manta::Shutdown();
    return Py_NewRef(Py_None);
  });
}

PyObject* IsInitialized(PyObject*, PyObject*) { return PyBool_FromLong(manta::IsInitialized()); }

PyObject* FindActor(PyObject*, PyObject* args) {
  const char* name = nullptr;
  const char* space = nullptr;
  if (!PyArg_ParseTuple(args, "ss", &name, &space)) return nullptr;
  return Guard([&] {
    internal::ActorEntry* actor = nullptr;
    {
      const NoGil free;
      actor = internal::FindActor(name, space);
    }
    PyObject* made = NewActor(actor);
    if (made != nullptr) Weaken(made);
    return made;
  });
}

// list_names(space) -> [(namespace, name)]; an empty space: of all
PyObject* ListNames(PyObject*, PyObject* args) {
  const char* space = nullptr;
  if (!PyArg_ParseTuple(args, "s", &space)) return nullptr;
  return Guard([&]() -> PyObject* {
    std::vector<std::pair<std::string, std::string>> names;
    {
      const NoGil free;
      names = internal::ListNames(space);
    }
    Obj out(PyList_New(0));
    for (const auto& [in, name] : names) {
      const Obj row(Py_BuildValue("ss", in.c_str(), name.c_str()));
      if (!out || !row || PyList_Append(out.get(), row.get()) != 0) return nullptr;
    }
    return out.release();
  });
}

PyObject* KillActor(PyObject*, PyObject* args) {
  PyObject* object = nullptr;
  int restart = 0;
  if (!PyArg_ParseTuple(args, "Op", &object, &restart)) return nullptr;
  internal::ActorEntry* actor = ActorOf(object);
  if (actor == nullptr) return nullptr;
  return Guard([&] {
    internal::KillActor(actor, restart != 0);
    return Py_NewRef(Py_None);
  });
}

// context() -> (task name, task id, node, in a worker, [gpu], namespace)
PyObject* GetContext(PyObject*, PyObject*) {
  return Guard([&]() -> PyObject* {
    const Context context = CurrentContext();
    Obj gpus(PyList_New(0));
    for (const std::uint32_t gpu : context.gpus) {
      const Obj number(PyLong_FromUnsignedLong(gpu));
      if (!number || PyList_Append(gpus.get(), number.get()) != 0) return nullptr;
    }
    return Py_BuildValue("sssOOs", context.task.c_str(), context.task_id.c_str(), context.node.c_str(),
                         context.in_worker ? Py_True : Py_False, gpus.get(), internal::Space().c_str());
  });
}

PyObject* Amounts(const std::map<std::string, double>& amounts) {
  Obj out(PyDict_New());
  for (const auto& [name, amount] : amounts) {
    const Obj number(PyFloat_FromDouble(amount));
    if (!out || !number || PyDict_SetItemString(out.get(), name.c_str(), number.get()) != 0) return nullptr;
  }
  return out.release();
}

PyObject* GetClusterResources(PyObject*, PyObject*) {
  return Guard([&] { return Amounts(ClusterResources()); });
}

PyObject* GetAvailableResources(PyObject*, PyObject*) {
  return Guard([&] {
    std::map<std::string, double> amounts;
    {
      const NoGil free;
      amounts = AvailableResources();
    }
    return Amounts(amounts);
  });
}

PyObject* OwnActor(PyObject*, PyObject*) { return PyUnicode_FromString(internal::OwnActor().c_str()); }

// own_handle() -> ActorRef or None
PyObject* OwnHandle(PyObject*, PyObject*) {
  return Guard([&]() -> PyObject* {
    internal::ActorEntry* actor = internal::OwnActorHandle();
    return actor == nullptr ? Py_NewRef(Py_None) : NewActor(actor);
  });
}

// end_own_actor(why): for good, when the calls that run have ended
PyObject* EndOwnActor(PyObject*, PyObject* why) {
  const char* text = PyUnicode_AsUTF8(why);
  if (text == nullptr) return nullptr;
  return Guard([&] {
    internal::EndWorker({0, true, text});
    return Py_NewRef(Py_None);
  });
}

PyObject* LendWhenIdle(PyObject*, PyObject*) {
  internal::LendWhenIdle();
  Py_RETURN_NONE;
}

// commit(): what was done so far is on disk
PyObject* CommitLineage(PyObject*, PyObject*) {
  return Guard([&] {
    const NoGil free;
    manta::Commit();
    return Py_NewRef(Py_None);
  });
}

PyObject* OwnActorName(PyObject*, PyObject*) { return PyUnicode_FromString(internal::OwnActorName().c_str()); }
PyObject* WasRestarted(PyObject*, PyObject*) { return PyBool_FromLong(internal::WasRestarted()); }

PyObject* GetJob(PyObject*, PyObject*) {
  return Guard([&] { return PyUnicode_FromString(internal::JobOf().c_str()); });
}

PyObject* GetAssignedResources(PyObject*, PyObject*) {
  return Guard([&] { return Amounts(internal::AssignedResources()); });
}

// load_library(path) -> [(name, parameters, returns, refs, creates, read_only)]: of what other languages may call
PyObject* LoadLibrary(PyObject*, PyObject* path) {
  const char* text = PyUnicode_AsUTF8(path);
  if (text == nullptr) return nullptr;
  return Guard([&]() -> PyObject* {
    internal::LoadPlainLibrary(text);
    Obj out(PyList_New(0));
    for (const std::string& name : internal::PlainNames(text)) {
      const internal::PlainCode* code = internal::FindPlain(text, name);
      const Obj row(Py_BuildValue("sIIKOO", name.c_str(), code->parameters, code->returns,
                                  static_cast<unsigned long long>(code->refs), code->creates ? Py_True : Py_False,
                                  code->read_only ? Py_True : Py_False));
      if (!out || !row || PyList_Append(out.get(), row.get()) != 0) return nullptr;
    }
    return out.release();
  });
}

PyMethodDef functions[] = {
    {"load_library", LoadLibrary, METH_O, nullptr},
    {"setup", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&Setup)), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"init", Init, METH_VARARGS, nullptr},
    {"shutdown", Shutdown, METH_NOARGS, nullptr},
    {"is_initialized", IsInitialized, METH_NOARGS, nullptr},
    {"find_actor", FindActor, METH_VARARGS, nullptr},
    {"list_names", ListNames, METH_VARARGS, nullptr},
    {"kill_actor", KillActor, METH_VARARGS, nullptr},
    {"own_actor", OwnActor, METH_NOARGS, nullptr},
    {"own_handle", OwnHandle, METH_NOARGS, nullptr},
    {"end_own_actor", EndOwnActor, METH_O, nullptr},
    {"lend_when_idle", LendWhenIdle, METH_NOARGS, nullptr},
    {"context", GetContext, METH_NOARGS, nullptr},
    {"commit", CommitLineage, METH_NOARGS, nullptr},
    {"own_actor_name", OwnActorName, METH_NOARGS, nullptr},
    {"was_restarted", WasRestarted, METH_NOARGS, nullptr},
    {"job", GetJob, METH_NOARGS, nullptr},
    {"assigned_resources", GetAssignedResources, METH_NOARGS, nullptr},
    {"available_resources", GetAvailableResources, METH_NOARGS, nullptr},
    {"cluster_resources", GetClusterResources, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "manta._core", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace manta::python

PyMODINIT_FUNC PyInit__core() {
  using namespace manta::python;
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  manta::internal::SetForeignRunner(&RunPython);
  manta::internal::SetPickleReader(&PlainOfPickle);
  if (AddRefTypes(module) && AddValueTypes(module) && AddCallTypes(module) && AddRunFunctions(module) &&
      AddWaitFunctions(module) && AddTimelineFunctions(module) && AddGroupFunctions(module))
    return module;
  Py_DECREF(module);
  return nullptr;
}
