// C++ exceptions become those of manta.exceptions.
#include <exception>
#include <new>

#include "py.h"

namespace manta::python {
namespace {

void Set(Code code, const char* message) {
  const auto index = static_cast<Py_ssize_t>(code);
  PyObject* type = hooks.errors != nullptr && index < PyTuple_GET_SIZE(hooks.errors)
                       ? PyTuple_GET_ITEM(hooks.errors, index)
                       : PyExc_RuntimeError;
  const Obj text(PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::char_traits<char>::length(message)),
                                      "backslashreplace"));
  if (text) PyErr_SetObject(type, text.get());
}

}  // namespace

PyObject* RaiseCurrent() {
  try {
    throw;
  } catch (const TaskError& error) {
    if (error.type() != "python") {
      Set(error.code(), error.what());
      return nullptr;
    }
    const Obj exception(PyObject_CallFunction(hooks.rebuild, "s#y#", error.what(),
                                              static_cast<Py_ssize_t>(std::char_traits<char>::length(error.what())),
                                              error.cause().data(), static_cast<Py_ssize_t>(error.cause().size())));
    if (exception) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  } catch (const Error& error) {
    Set(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace manta::python
