// get, wait and cancel.
#pragma once

#include "py.h"

namespace manta::python {

bool AddWaitFunctions(PyObject* module);

}  // namespace manta::python
