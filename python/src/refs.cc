#include "refs.h"

#include <structmember.h>

#include <string>

#include "manta/internal/embed.h"

namespace manta::python {

PyTypeObject* ref_type = nullptr;
PyTypeObject* actor_type = nullptr;

namespace {

PyObject* decode_ref = nullptr;  // the module's functions of these names
PyObject* decode_actor = nullptr;

void RefDealloc(PyObject* self) {
  auto* ref = reinterpret_cast<RefObject*>(self);
  if (ref->weak != nullptr) PyObject_ClearWeakRefs(self);
  internal::Release(ref->entry);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

Py_hash_t RefHash(PyObject* self) {
  const auto hash = static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(EntryOf(self)) >> 4);
  return hash == -1 ? -2 : hash;
}

// An object has one entry in a process, however often its Ref came.
PyObject* RefCompare(PyObject* a, PyObject* b, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || !IsRef(a) || !IsRef(b)) Py_RETURN_NOTIMPLEMENTED;
  const bool same = EntryOf(a) == EntryOf(b);
  return PyBool_FromLong(same == (operation == Py_EQ));
}

PyObject* RefHex(PyObject* self, PyObject*) { return PyUnicode_FromString(internal::IdText(EntryOf(self)).c_str()); }

PyObject* RefRepr(PyObject* self) {
  return PyUnicode_FromFormat("ObjectRef(%s)", internal::IdText(EntryOf(self)).c_str());
}

PyObject* RefIsReady(PyObject* self, PyObject*) { return PyBool_FromLong(internal::IsReady(EntryOf(self))); }

PyObject* RefReduce(PyObject* self, PyObject*) {
  return Guard([&] {
    std::byte name[internal::kRefBytes];
    internal::EncodeRef(EntryOf(self), name);
    return Py_BuildValue("O(y#)", decode_ref, reinterpret_cast<const char*>(name), Py_ssize_t{sizeof name});
  });
}

PyObject* RefAwait(PyObject* self) { return PyObject_CallOneArg(hooks.await_ref, self); }

// Rarely called, so that nothing is kept for it.
PyObject* RefFuture(PyObject* self, PyObject*) {
  const Obj module(PyImport_ImportModule("manta._aio"));
  return module ? PyObject_CallMethod(module.get(), "future_of", "O", self) : nullptr;
}

PyObject* RefBinary(PyObject* self, PyObject*) {
  const Obj digits(RefHex(self, nullptr));
  return digits ? PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBytes_Type), "fromhex", "O", digits.get())
                : nullptr;
}

// TaskID(hex) or JobID(hex) of manta._ids.
PyObject* NewId(const char* kind, const std::string& digits) {
  const Obj module(PyImport_ImportModule("manta._ids"));
  return module ? PyObject_CallMethod(module.get(), kind, "s", digits.c_str()) : nullptr;
}

PyObject* RefTaskId(PyObject* self, PyObject*) { return NewId("TaskID", internal::IdText(EntryOf(self))); }

PyObject* RefJobId(PyObject*, PyObject*) {
  return Guard([&] { return NewId("JobID", internal::JobOf()); });
}

PyObject* RefIsNil(PyObject*, PyObject*) { Py_RETURN_FALSE; }

PyMethodDef ref_methods[] = {
    {"hex", RefHex, METH_NOARGS, "The object's id in hexadecimal digits."},
    {"binary", RefBinary, METH_NOARGS, "The object's id in bytes."},
    {"task_id", RefTaskId, METH_NOARGS, "The id of the task that makes it."},
    {"job_id", RefJobId, METH_NOARGS, "The id of this program's job."},
    {"is_nil", RefIsNil, METH_NOARGS, "False: there is no ObjectRef that names nothing."},
    {"future", RefFuture, METH_NOARGS, "A concurrent.futures.Future of the value."},
    {"is_ready", RefIsReady, METH_NOARGS, "Would get return (or raise) at once?"},
    {"__reduce__", RefReduce, METH_NOARGS, nullptr},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, "ObjectRef[int], for type hints."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef ref_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RefObject, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot ref_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&RefDealloc)},
    {Py_tp_hash, reinterpret_cast<void*>(&RefHash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(&RefCompare)},
    {Py_tp_repr, reinterpret_cast<void*>(&RefRepr)},
    {Py_am_await, reinterpret_cast<void*>(&RefAwait)},
    {Py_tp_methods, ref_methods},
    {Py_tp_members, ref_members},
    {Py_tp_doc, const_cast<char*>("Names a value that a task will produce, or that put stored. Can be awaited.")},
    {0, nullptr},
};
PyType_Spec ref_spec = {"manta.ObjectRef", sizeof(RefObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        ref_slots};

void ActorDealloc(PyObject* self) {
  const auto* actor = reinterpret_cast<ActorObject*>(self);
  if (actor->weak) {
    internal::ReleaseWeak(actor->entry);
  } else {
    internal::Release(actor->entry);
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* ActorHex(PyObject* self, PyObject*) {
  return PyUnicode_FromString(internal::IdText(reinterpret_cast<ActorObject*>(self)->entry).c_str());
}

PyObject* ActorAbout(PyObject* self, PyObject*) {
  const std::string about = internal::AboutActor(reinterpret_cast<ActorObject*>(self)->entry);
  return PyBytes_FromStringAndSize(about.data(), static_cast<Py_ssize_t>(about.size()));
}

PyObject* ActorRetries(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(internal::RetriesOf(reinterpret_cast<ActorObject*>(self)->entry));
}

PyObject* ActorReduce(PyObject* self, PyObject*) {
  return Guard([&] {
    std::byte name[internal::kRefBytes];
    internal::EncodeActor(reinterpret_cast<ActorObject*>(self)->entry, name);
    return Py_BuildValue("O(y#)", decode_actor, reinterpret_cast<const char*>(name), Py_ssize_t{sizeof name});
  });
}

PyMethodDef actor_methods[] = {
    {"hex", ActorHex, METH_NOARGS, nullptr},
    {"about", ActorAbout, METH_NOARGS, "What its creator wanted whoever finds it to know."},
    {"retries", ActorRetries, METH_NOARGS, "Of its calls: max_task_retries."},
    {"__reduce__", ActorReduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot actor_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&ActorDealloc)},
    {Py_tp_methods, actor_methods},
    {0, nullptr},
};
PyType_Spec actor_spec = {"manta._core.ActorRef", sizeof(ActorObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, actor_slots};

const std::byte* NameIn(PyObject* bytes) {
  if (!PyBytes_Check(bytes) || PyBytes_GET_SIZE(bytes) != Py_ssize_t{internal::kRefBytes}) {
    PyErr_SetString(PyExc_ValueError, "manta: this is not the name of an object or actor");
    return nullptr;
  }
  return reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes));
}

PyObject* DecodeRef(PyObject*, PyObject* bytes) {
  const std::byte* name = NameIn(bytes);
  if (name == nullptr) return nullptr;
  return Guard([&]() -> PyObject* {
    internal::Entry* entry = internal::DecodeRef(name);
    return entry == nullptr ? Py_NewRef(Py_None) : NewRef(entry);
  });
}

PyObject* DecodeActor(PyObject*, PyObject* bytes) {
  const std::byte* name = NameIn(bytes);
  if (name == nullptr) return nullptr;
  return Guard([&]() -> PyObject* {
    internal::ActorEntry* entry = internal::DecodeActor(name);
    return entry == nullptr ? Py_NewRef(Py_None) : NewActor(entry);
  });
}

PyMethodDef functions[] = {
    {"decode_ref", DecodeRef, METH_O, nullptr},
    {"decode_actor", DecodeActor, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

internal::ActorEntry* ActorOf(PyObject* object) {
  if (Py_TYPE(object) == actor_type) return reinterpret_cast<ActorObject*>(object)->entry;
  PyErr_Format(PyExc_TypeError, "manta: expected an actor, not %.100s", Py_TYPE(object)->tp_name);
  return nullptr;
}

PyObject* NewRef(internal::Entry* entry) {
  auto* ref = PyObject_New(RefObject, ref_type);
  if (ref == nullptr) {
    internal::Release(entry);
    return nullptr;
  }
  ref->entry = entry;
  ref->weak = nullptr;
  return reinterpret_cast<PyObject*>(ref);
}

PyObject* NewActor(internal::ActorEntry* entry) {
  auto* actor = PyObject_New(ActorObject, actor_type);
  if (actor == nullptr) {
    internal::Release(entry);
    return nullptr;
  }
  actor->entry = entry;
  actor->weak = false;
  return reinterpret_cast<PyObject*>(actor);
}

void Weaken(PyObject* actor) {
  auto* found = reinterpret_cast<ActorObject*>(actor);
  internal::Weaken(found->entry);
  found->weak = true;
}

bool AddRefTypes(PyObject* module) {
  ref_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&ref_spec));
  actor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&actor_spec));
  if (ref_type == nullptr || actor_type == nullptr || PyModule_AddFunctions(module, functions) != 0) return false;
  decode_ref = PyObject_GetAttrString(module, "decode_ref");
  decode_actor = PyObject_GetAttrString(module, "decode_actor");
  return PyModule_AddObjectRef(module, "ObjectRef", reinterpret_cast<PyObject*>(ref_type)) == 0 &&
         PyModule_AddObjectRef(module, "ActorRef", reinterpret_cast<PyObject*>(actor_type)) == 0;
}

}  // namespace manta::python
