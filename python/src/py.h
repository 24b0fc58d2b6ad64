// Small helpers around the CPython API, and what the parts of the module know of each other.
//
// The API is used as it is, not through pybind11: a task costs under a microsecond in the engine, a call through a
// wrapper 130 ns, and the binding has few functions but hot ones.
//
// The GIL is held wherever a PyObject is touched, and released while waiting or copying much.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

#include "manta/internal/core.h"
#include "manta/internal/embed.h"

namespace manta::python {

// One counted reference.
class Obj {
 public:
  Obj() = default;
  explicit Obj(PyObject* taken) : object_(taken) {}  // takes over one count
  static Obj Share(PyObject* object) {
    Py_XINCREF(object);
    return Obj(object);
  }
  Obj(Obj&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Obj& operator=(Obj&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Obj(const Obj&) = delete;
  ~Obj() { Py_XDECREF(object_); }
  [[nodiscard]] PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

class NoGil {
 public:
  NoGil() : state_(PyEval_SaveThread()) {}
  ~NoGil() { PyEval_RestoreThread(state_); }
  NoGil(const NoGil&) = delete;

 private:
  PyThreadState* state_;
};

// What the Python half gives us once, when it is imported (see module.cc, "setup").
struct Hooks {
  PyObject* dumps = nullptr;          // value -> (bytes, [PickleBuffer])
  PyObject* loads = nullptr;          // pickle.loads
  PyObject* load_function = nullptr;  // what was published, ObjectRef -> (callable, exceptions to retry, async, calls)
  PyObject* begin_async = nullptr;    // coroutine, number: has the loop run it, and end the call of that number
  PyObject* step_async = nullptr;     // wait: one turn of the loop; is anything under way?
  PyObject* save_actor = nullptr;     // actor -> its state, which can be pickled
  PyObject* load_actor = nullptr;     // a new actor, the state -> the actor, or one instead of it
  PyObject* special = nullptr;        // actor, name -> callable: methods that every actor has
  PyObject* describe = nullptr;       // exception, cancelled -> (text, payload)
  PyObject* rebuild = nullptr;        // text, payload -> exception
  PyObject* errors = nullptr;         // [exception class by Code]
  PyObject* progress = nullptr;       // ready, all: get has waited for a while; all ready: it is over
  PyObject* await_ref = nullptr;      // ObjectRef -> iterator, as __await__ returns
  PyObject* load_named = nullptr;     // module, name -> as load_function
  PyObject* make_array = nullptr;     // buffer, "f8", shape -> array
  PyObject* make_actor = nullptr;     // ActorRef -> ActorHandle
  PyObject* leaving = nullptr;        // SystemExit -> (exit status, an actor's end on purpose, why)
  PyObject* farewell = nullptr;       // actor or None: what to do when this process ends in order
  PyObject* import_arrow = nullptr;   // schema, [(schema, array)], is a table -> pyarrow's (all capsules)
};
extern Hooks hooks;

extern bool in_worker;  // this process is one

// errors.cc. In a catch block: sets the Python error that corresponds to the C++ exception. Returns nullptr.
PyObject* RaiseCurrent();

// Runs `body`, a C++ exception becoming a Python one.
template <typename Body>
PyObject* Guard(Body body) {
  try {
    return body();
  } catch (...) {
    return RaiseCurrent();
  }
}

}  // namespace manta::python
