// Record batches and tables of pyarrow, through the Arrow C data interface: in C++ they are manta::ArrowBatch and
// manta::ArrowTable. With the GIL.
#pragma once

#include <memory>

#include "manta/arrow.h"
#include "py.h"

namespace manta::python {

// nullptr: it is neither, or *failed and a Python error is set.
std::unique_ptr<internal::ArrowData> ExportArrow(PyObject* value, bool* failed);
// Looks at the bytes in place if `keep` holds them. nullptr: a Python error is set.
PyObject* ImportArrow(internal::View view, const KeepAlive& keep);

}  // namespace manta::python
