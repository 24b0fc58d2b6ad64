// The module manta._tune: the tuning library as Python sees it. Everything that a user meets is written in Python on
// top of it (manta.tune); decisions, the journal and the loggers are native.
#include "convert.h"
#include "run.h"
#include "searchers.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "manta._tune", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__tune() {
  using namespace manta::python;
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  if (AddSearcherTypes(module) && AddRunType(module)) return module;
  Py_DECREF(module);
  return nullptr;
}
