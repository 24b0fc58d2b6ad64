// The type manta._tune.Run: the controller of a run with its journal and its loggers.
#pragma once

#include "convert.h"

namespace manta::python {

bool AddRunType(PyObject* module);

}  // namespace manta::python
