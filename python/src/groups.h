// Placement groups and nodes, and how options say where something runs (manta/placement.h).
#pragma once

#include "manta/placement.h"
#include "py.h"

namespace manta::python {

// From None, or (node, soft, spread, [label rule], [label rule preferred], group, bundle). false: a Python error is
// set.
bool ReadPlacement(PyObject* where, Placement* out);

bool AddGroupFunctions(PyObject* module);

}  // namespace manta::python
