// The rules of a run, its resources and its description, read from Python dictionaries.
#pragma once

#include "convert.h"
#include "tune/journal/run_log.h"
#include "tune/trials/controller.h"

namespace manta::python {

tune::trials::RunRules RulesOf(PyObject* dict);
tune::TrialResources ResourcesOf(PyObject* pair);  // ([bundle], strategy)
tune::journal::Description DescriptionOf(PyObject* dict);

}  // namespace manta::python
