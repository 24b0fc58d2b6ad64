#include "convert.h"

#include <new>
#include <optional>
#include <stdexcept>
#include <type_traits>

namespace manta::python {

Held Must(PyObject* made) {
  if (made == nullptr) throw PythonError{};
  return Held(made);
}

std::string TextOf(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw PythonError{};
  return {data, static_cast<std::size_t>(size)};
}

double NumberOf(PyObject* number) {
  const double value = PyFloat_AsDouble(number);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw PythonError{};
  return value;
}

namespace {

tune::Value IntegerOf(PyObject* integer) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(integer, &overflow);
  if (overflow != 0) return NumberOf(integer);
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
  return static_cast<std::int64_t>(value);
}

// A number of another library: NumPy's scalars, an array or a tensor without dimensions.
std::optional<tune::Value> ScalarOf(PyObject* value) {
  const PyNumberMethods* methods = Py_TYPE(value)->tp_as_number;
  if (value == Py_None || methods == nullptr) return std::nullopt;
  if (PySequence_Check(value) != 0) {
    if (PyObject_Length(value) >= 0) return std::nullopt;
    PyErr_Clear();  // it has no length
  }
  if (PyIndex_Check(value) != 0) {
    const Held number(PyNumber_Index(value));
    if (number) return IntegerOf(number.get());
    PyErr_Clear();
  }
  if (methods->nb_float == nullptr) return std::nullopt;
  const Held number(PyNumber_Float(value));
  if (number) return PyFloat_AS_DOUBLE(number.get());
  PyErr_Clear();
  return std::nullopt;
}

// json.dumps(value, default=str)
std::string JsonOf(PyObject* value) {
  static PyObject* dumps = nullptr;
  static PyObject* keywords = nullptr;
  if (dumps == nullptr) {
    const Held module = Must(PyImport_ImportModule("manta.tune._json"));
    keywords = Must(PyDict_New()).release();
    dumps = Must(PyObject_GetAttrString(module.get(), "text")).release();
  }
  const Held arguments = Must(PyTuple_Pack(1, value));
  const Held text = Must(PyObject_Call(dumps, arguments.get(), keywords));
  return TextOf(text.get());
}

}  // namespace

tune::Value ValueOf(PyObject* plain) {
  if (PyBool_Check(plain)) return plain == Py_True;
  if (PyLong_Check(plain)) return IntegerOf(plain);
  if (PyFloat_Check(plain)) return PyFloat_AS_DOUBLE(plain);
  if (PyUnicode_Check(plain)) return TextOf(plain);
  PyErr_Format(PyExc_TypeError, "a value of a space must be a bool, an int, a float or text, not %R", plain);
  throw PythonError{};
}

tune::Config ConfigOf(PyObject* dict) {
  tune::Config out;
  if (!PyDict_Check(dict)) {
    PyErr_Format(PyExc_TypeError, "a configuration must be a dictionary, not %R", dict);
    throw PythonError{};
  }
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) out[TextOf(key)] = ValueOf(value);
  return out;
}

tune::Amounts AmountsOf(PyObject* dict) {
  tune::Amounts out;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) out[TextOf(key)] = NumberOf(value);
  return out;
}

PyObject* FromText(const std::string& text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
}

PyObject* FromValue(const tune::Value& value) {
  return std::visit(
      [](const auto& held) -> PyObject* {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, bool>) return PyBool_FromLong(held ? 1 : 0);
        if constexpr (std::is_same_v<T, std::int64_t>) return PyLong_FromLongLong(held);
        if constexpr (std::is_same_v<T, double>) return PyFloat_FromDouble(held);
        if constexpr (std::is_same_v<T, std::string>) return FromText(held);
      },
      value);
}

PyObject* FromConfig(const tune::Config& config) {
  Held out = Must(PyDict_New());
  for (const auto& [key, value] : config) {
    const Held name = Must(FromText(key));
    const Held item = Must(FromValue(value));
    if (PyDict_SetItem(out.get(), name.get(), item.get()) != 0) throw PythonError{};
  }
  return out.release();
}

void FlattenOne(const std::string& key, PyObject* value, Flat& out) {
  if (PyFloat_Check(value)) {
    out.metrics[key] = PyFloat_AS_DOUBLE(value);
  } else if (PyBool_Check(value) || PyLong_Check(value) || PyUnicode_Check(value)) {
    out.metrics[key] = ValueOf(value);
  } else if (PyDict_Check(value)) {
    Flatten(value, key + "/", out);
  } else if (std::optional<tune::Value> number = ScalarOf(value)) {
    out.metrics[key] = *number;
  } else {
    out.json[key] = JsonOf(value);
  }
}

void Flatten(PyObject* dict, const std::string& prefix, Flat& out) {
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    if (PyUnicode_Check(key)) {
      FlattenOne(prefix + TextOf(key), value, out);
    } else {
      const Held text = Must(PyObject_Str(key));
      FlattenOne(prefix + TextOf(text.get()), value, out);
    }
  }
}

PyObject* RaiseFor() {
  try {
    throw;
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {  // SpaceError, too
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace manta::python
