// Submitting: from `f.remote(1, x=2)` to a call of the engine. Every call of a Python function or actor has the same
// trampoline; its first argument is a ForeignHead that says what to run, the others are the call's own, one by one.
#pragma once

#include <cstdint>

#include "manta/internal/foreign_call.h"
#include "py.h"

namespace manta::python {

using CallHead = internal::ForeignHead;
using CallKind = internal::ForeignKind;

void RunPython(internal::Invocation& call);  // run.cc

bool AddCallTypes(PyObject* module);

}  // namespace manta::python
