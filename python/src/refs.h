// The Python objects that count entries of the engine: ObjectRef, and ActorRef, which an ActorHandle wraps.
//
// Inside a pickled value each is its name of 24 bytes, and whatever carries the value keeps it alive.
#pragma once

#include "py.h"

namespace manta::python {

struct RefObject {
  PyObject_HEAD internal::Entry* entry;  // counted
  PyObject* weak;
};
struct ActorObject {
  PyObject_HEAD internal::ActorEntry* entry;  // counted
  bool weak;                                  // its count does not keep the actor alive
};

extern PyTypeObject* ref_type;
extern PyTypeObject* actor_type;

inline bool IsRef(PyObject* object) { return Py_TYPE(object) == ref_type; }
inline internal::Entry* EntryOf(PyObject* object) { return reinterpret_cast<RefObject*>(object)->entry; }
// nullptr with a TypeError if it is something else.
internal::ActorEntry* ActorOf(PyObject* object);

PyObject* NewRef(internal::Entry* entry);         // takes over one count, also when it fails
PyObject* NewActor(internal::ActorEntry* entry);  // likewise
// Of a new one: from now on it does not keep the actor alive.
void Weaken(PyObject* actor);

bool AddRefTypes(PyObject* module);

}  // namespace manta::python
