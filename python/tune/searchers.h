// Native searchers as Python objects, and searchers written in Python as native ones.
#pragma once

#include <memory>

#include "convert.h"
#include "manta/tune/search.h"

namespace manta::python {

bool AddSearcherTypes(PyObject* module);

// The searcher of a run: a native one that is a Python object, or a Python object with the methods of
// manta.tune._adapters.SearcherAdapter. Throws PythonError. `foreign` is set for the second kind.
std::unique_ptr<tune::Searcher> SearcherFrom(PyObject* object, bool* foreign);

// [(path, kind, low, high, q, log, values, parent, parent_values)] as manta.tune._space.Space.parameters.
tune::Space SpaceOf(PyObject* parameters);
tune::Domain DomainOf(PyObject* row, Py_ssize_t first);

}  // namespace manta::python
