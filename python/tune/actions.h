// Actions of the controller as Python tuples: (name, trial, …).
#pragma once

#include <optional>
#include <vector>

#include "convert.h"
#include "manta/tune/events.h"

namespace manta::python {

PyObject* FromActions(const std::vector<tune::Action>& actions);

// (path, index, iteration, time_total)
PyObject* FromCheckpoint(const tune::Checkpoint& checkpoint);
std::optional<tune::Checkpoint> CheckpointOf(PyObject* tuple);  // None: nothing

}  // namespace manta::python
