// Reads the options of a searcher or scheduler from a Python dictionary. Each option that is read is counted, so that
// one that nothing reads is an error and not ignored.
#pragma once

#include <string>
#include <vector>

#include "convert.h"

namespace manta::python {

class Options {
 public:
  explicit Options(PyObject* dict) : dict_(dict) {}

  PyObject* Find(const char* name) {  // borrowed; nullptr: absent or None
    PyObject* found = PyDict_GetItemString(dict_, name);
    if (found != nullptr) ++read_;
    return found == Py_None ? nullptr : found;
  }
  void Read(const char* name, double& out) {
    if (PyObject* found = Find(name)) out = NumberOf(found);
  }
  void Read(const char* name, bool& out) {
    if (PyObject* found = Find(name)) out = PyObject_IsTrue(found) == 1;
  }
  void Read(const char* name, std::string& out) {
    if (PyObject* found = Find(name)) out = TextOf(found);
  }
  template <typename Integer>
    requires std::is_integral_v<Integer>
  void Read(const char* name, Integer& out) {
    PyObject* found = Find(name);
    if (found == nullptr) return;
    const long long value = PyLong_AsLongLong(found);
    if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
    out = static_cast<Integer>(value);
  }
  void Read(const char* name, tune::Mode& out) {
    if (PyObject* found = Find(name)) out = TextOf(found) == "max" ? tune::Mode::kMax : tune::Mode::kMin;
  }
  void Read(const char* name, std::vector<tune::Mode>& out) {
    ForEach(name, [&](PyObject* item) { out.push_back(TextOf(item) == "max" ? tune::Mode::kMax : tune::Mode::kMin); });
  }
  void Read(const char* name, std::vector<double>& out) {
    if (PyDict_GetItemString(dict_, name) != nullptr) out.clear();
    ForEach(name, [&](PyObject* item) { out.push_back(NumberOf(item)); });
  }
  void Read(const char* name, std::vector<tune::Config>& out) {
    ForEach(name, [&](PyObject* item) { out.push_back(ConfigOf(item)); });
  }
  void Read(const char* name, std::map<std::string, double>& out) {
    if (PyObject* found = Find(name)) out = AmountsOf(found);
  }
  template <typename Body>
  void ForEach(const char* name, Body body) {
    PyObject* found = Find(name);
    if (found == nullptr) return;
    const Held items = Must(PySequence_Fast(found, name));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
      body(PySequence_Fast_GET_ITEM(items.get(), i));
  }
  // After all options were read.
  void Done(const std::string& what) const {
    if (read_ >= PyDict_Size(dict_)) return;
    PyErr_Format(PyExc_ValueError, "%s: the native part does not know all of the options %R", what.c_str(), dict_);
    throw PythonError{};
  }

 private:
  PyObject* dict_;
  Py_ssize_t read_ = 0;
};

}  // namespace manta::python
