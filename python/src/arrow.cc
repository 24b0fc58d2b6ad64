#include "arrow.h"

#include <cstring>
#include <utility>

namespace manta::python {
namespace {

constexpr const char* kSchema = "arrow_schema";  // names of capsules, as the PyCapsule interface of Arrow says
constexpr const char* kArray = "arrow_array";

// What the capsule holds becomes *out.
template <typename T>
bool TakeOver(PyObject* capsule, const char* name, T* out) {
  auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  if (held == nullptr) return false;
  *out = std::exchange(*held, T{});
  return true;
}

bool AddBatch(PyObject* batch, internal::ArrowData* data) {
  const Obj pair(PyObject_CallMethod(batch, "__arrow_c_array__", nullptr));
  if (!pair || !PyTuple_Check(pair.get()) || PyTuple_GET_SIZE(pair.get()) != 2) return false;
  ArrowArray array{};
  if (!TakeOver(PyTuple_GET_ITEM(pair.get(), 1), kArray, &array)) return false;
  data->batches.push_back(array);
  return data->schema.release != nullptr || TakeOver(PyTuple_GET_ITEM(pair.get(), 0), kSchema, &data->schema);
}

bool AddTable(PyObject* table, internal::ArrowData* data) {
  data->table = true;
  const Obj schema(PyObject_GetAttrString(table, "schema"));
  const Obj capsule(schema ? PyObject_CallMethod(schema.get(), "__arrow_c_schema__", nullptr) : nullptr);
  if (!capsule || !TakeOver(capsule.get(), kSchema, &data->schema)) return false;
  const Obj batches(PyObject_CallMethod(table, "to_batches", nullptr));
  if (!batches || !PyList_Check(batches.get())) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(batches.get()); ++i) {
    if (!AddBatch(PyList_GET_ITEM(batches.get(), i), data)) return false;
  }
  return true;
}

template <typename T>
void Forget(PyObject* capsule) {
  auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  if (held == nullptr) return PyErr_Clear();
  if (held->release != nullptr) held->release(held);  // else somebody has imported it
  delete held;
}

}  // namespace

std::unique_ptr<internal::ArrowData> ExportArrow(PyObject* value, bool* failed) {
  const char* name = Py_TYPE(value)->tp_name;
  const bool batch = std::strcmp(name, "pyarrow.lib.RecordBatch") == 0;
  if (!batch && std::strcmp(name, "pyarrow.lib.Table") != 0) return nullptr;
  if (PyObject_HasAttrString(value, "__arrow_c_stream__") == 0) return nullptr;  // too old: it is pickled
  auto data = std::make_unique<internal::ArrowData>();
  if (batch ? AddBatch(value, data.get()) : AddTable(value, data.get())) return data;
  *failed = true;
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "pyarrow gave no Arrow structs for this value");
  return nullptr;
}

PyObject* ImportArrow(internal::View view, const KeepAlive& keep) {
  return Guard([&]() -> PyObject* {
    const std::shared_ptr<const internal::ArrowData> data = internal::ArrowRead(view.bytes(), keep);
    const auto new_schema = [&] {
      auto* schema = new ArrowSchema();
      internal::ArrowExport(data, schema);
      return PyCapsule_New(schema, kSchema, &Forget<ArrowSchema>);
    };
    const Obj schema(new_schema());
    const Obj batches(PyList_New(0));
    for (std::size_t i = 0; schema && batches && i < data->batches.size(); ++i) {
      auto* array = new ArrowArray();
      internal::ArrowExport(data, i, array);
      const Obj own(new_schema());
      const Obj capsule(PyCapsule_New(array, kArray, &Forget<ArrowArray>));
      const Obj pair(own && capsule ? PyTuple_Pack(2, own.get(), capsule.get()) : nullptr);
      if (!pair || PyList_Append(batches.get(), pair.get()) != 0) return nullptr;
    }
    if (!schema || !batches) return nullptr;
    return PyObject_CallFunctionObjArgs(hooks.import_arrow, schema.get(), batches.get(),
                                        data->table ? Py_True : Py_False, nullptr);
  });
}

}  // namespace manta::python
