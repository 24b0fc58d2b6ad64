// Native schedulers for a run, made from a name and options, and schedulers written in Python as native ones.
#pragma once

#include <memory>

#include "convert.h"
#include "manta/tune/schedule.h"

namespace manta::python {

// `spec` is (name, options), or a Python object with the methods of manta.tune._adapters.SchedulerAdapter. `foreign` is
// set when Python code takes part in its decisions: they cannot be made again in a replay. Throws PythonError.
std::unique_ptr<tune::Scheduler> SchedulerFrom(PyObject* spec, bool* foreign);

}  // namespace manta::python
