// The worker's side: what a forked interpreter does before its first task, and how it runs calls.
#pragma once

#include "py.h"

namespace manta::python {

bool AddRunFunctions(PyObject* module);

}  // namespace manta::python
