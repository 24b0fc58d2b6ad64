// C++ exceptions become those of manta.exceptions, and what their texts advise is said as Python says it.
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "py.h"

namespace manta::python {
namespace {

// The engine's advice names what C++ has. A test looks whether all that it names is here.
struct Word {
  std::string_view cpp;
  std::string_view python;
};
constexpr Word kWords[] = {
    {"Config::cpus, Config::resources", "init(num_cpus=, resources=)"},
    {"Config::cpus, gpus, resources", "init(num_cpus=, num_gpus=, resources=)"},
    {"SetCpus, Config::cpus", "num_cpus=, init(num_cpus=)"},
    {"Config::cpus", "init(num_cpus=)"},
    {"Config::gpus", "init(num_gpus=)"},
    {"Config::resources", "init(resources=)"},
    {"Config::store_bytes", "init(object_store_memory=)"},
    {"Config::spill_folder", "init(_temp_dir=)"},
    {"Config::spill_bytes", "manta start --spill-limit"},
    {"Config::lineage_memory", "init(lineage_memory=)"},
    {"Config::quota", "init(quota=)"},
    {"Config::job", "init(job=)"},
    {"manta::Init()", "manta.init()"},
    {"with Init()", "with manta.init()"},
    {"SetMaxCallRetries (max_task_retries)", "max_task_retries"},
    {"max_call_retries", "max_task_retries"},
    {"killed by Kill()", "ended by manta.kill, exit_actor() or an exit with exit code 0"},
    {"const, ReadOnly(); in Python @manta", "@manta"},
    {"CheckpointEvery, checkpoint_every=", "checkpoint_every="},
    {"SetReplay(false), replay=False", "replay=False"},
    {"SetRetries(0), max_retries=0", "max_retries=0"},
    {"SetRetries(0)", "max_retries=0"},
};
// What a message begins with: the function that failed.
constexpr Word kFunctions[] = {{"Init: ", "init: "}, {"Put: ", "put: "}, {"Commit: ", "commit: "}};

std::string InPython(std::string text) {
  for (const Word& word : kFunctions) {
    if (text.starts_with(word.cpp)) text.replace(0, word.cpp.size(), word.python);
  }
  for (const Word& word : kWords) {
    for (std::size_t at = 0; (at = text.find(word.cpp, at)) != std::string::npos; at += word.python.size()) {
      text.replace(at, word.cpp.size(), word.python);
    }
  }
  return text;
}

// By a manta::Code, or what follows the codes in manta.exceptions.BY_CODE.
void Set(Py_ssize_t index, const std::string& message) {
  PyObject* type = hooks.errors != nullptr && index < PyTuple_GET_SIZE(hooks.errors)
                       ? PyTuple_GET_ITEM(hooks.errors, index)
                       : PyExc_RuntimeError;
  const Obj text(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (text) PyErr_SetObject(type, text.get());
}
void Set(Code code, const std::string& message) { Set(static_cast<Py_ssize_t>(code), message); }

constexpr Py_ssize_t kActorCrashed = static_cast<Py_ssize_t>(Code::kIo) + 1;
constexpr Py_ssize_t kNondeterminism = kActorCrashed + 1;

}  // namespace

PyObject* RaiseCurrent() {
  try {
    throw;
  } catch (const TaskError& error) {
    if (error.type() != "python") {
      Set(error.code(), error.what());
      return nullptr;
    }
    const Obj exception(PyObject_CallFunction(hooks.rebuild, "s#y#", error.what(),
                                              static_cast<Py_ssize_t>(std::char_traits<char>::length(error.what())),
                                              error.cause().data(), static_cast<Py_ssize_t>(error.cause().size())));
    if (exception) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  } catch (const internal::ActorCrashedError& error) {
    Set(kActorCrashed, InPython(error.what()));
  } catch (const NondeterminismError& error) {
    Set(kNondeterminism, InPython(error.what()));
  } catch (const Error& error) {
    Set(error.code(), InPython(error.what()));
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace manta::python
