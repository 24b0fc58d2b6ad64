// Values between Python and the tuning library. Functions that read Python objects return false, or throw PythonError,
// with the Python error set.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/events.h"

namespace manta::python {

// One counted reference.
class Held {
 public:
  Held() = default;
  explicit Held(PyObject* taken) : object_(taken) {}  // takes over one count
  static Held Share(PyObject* object) {
    Py_XINCREF(object);
    return Held(object);
  }
  Held(Held&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { Py_XDECREF(object_); }
  [[nodiscard]] PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// The Python error is set: the exception carries nothing.
struct PythonError {};

// Takes a new reference; nullptr becomes PythonError.
Held Must(PyObject* made);

std::string TextOf(PyObject* text);
double NumberOf(PyObject* number);
tune::Value ValueOf(PyObject* plain);     // bool, int, float, str; anything else is a TypeError
tune::Config ConfigOf(PyObject* dict);    // key path -> plain value
tune::Amounts AmountsOf(PyObject* dict);  // name -> number

PyObject* FromValue(const tune::Value& value);
PyObject* FromConfig(const tune::Config& config);
PyObject* FromText(const std::string& text);

// A result as key paths. Values that are neither numbers nor text go to `json`, as JSON. Keys of `skip` are left out.
struct Flat {
  tune::Metrics metrics;
  std::map<std::string, std::string> json;
};
void Flatten(PyObject* dict, const std::string& prefix, Flat& out);
// One entry; key is its path.
void FlattenOne(const std::string& key, PyObject* value, Flat& out);

// In a catch block: sets the Python error that corresponds to the C++ exception. Returns nullptr.
PyObject* RaiseFor();

template <typename Body>
PyObject* Guarded(Body body) {
  try {
    return body();
  } catch (...) {
    return RaiseFor();
  }
}

}  // namespace manta::python
