#include "calls.h"

#include <structmember.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "groups.h"
#include "refs.h"
#include "values.h"

namespace manta::python {
namespace {

constexpr std::uint32_t kMostReturns = 100000;

const internal::Site& TheSite() {
  static const internal::Site site = [] {
    internal::Site made;
    made.trampoline = &RunPython;
    return made;
  }();
  return site;
}

// The thread's argument buffer, given back however the call ends.
class ArgumentsScope {
 public:
  ArgumentsScope() : arguments(internal::Arguments::ForThisThread()) {}
  ~ArgumentsScope() { arguments.Done(); }
  ArgumentsScope(const ArgumentsScope&) = delete;
  internal::Arguments& arguments;
};

// Stores what is too large for the call itself. Counted; nullptr: a Python error is set.
internal::Entry* Begin(std::size_t size, std::byte** out) {
  const NoGil free;  // a full store lets us wait
  return internal::PutBegin(size, out);
}

internal::Entry* Store(Encoded& value, internal::RefScope& scope) {
  std::byte* out = nullptr;
  internal::Entry* entry = nullptr;
  try {
    entry = Begin(value.size(), &out);
  } catch (const OutOfMemoryError&) {
    // What only cycles of Python objects hold is not needed, and there may be room without it. Also if the program has
    // disabled collections, which PyGC_Collect heeds.
    const Obj module(PyImport_ImportModule("gc"));
    const Obj found(module ? PyObject_CallMethod(module.get(), "collect", nullptr) : nullptr);
    PyErr_Clear();
    entry = Begin(value.size(), &out);
  }
  value.Write(out);
  internal::PutEnd(entry, scope);
  return entry;
}

// `by_name`: a Ref is passed itself, not waited for. *pickled is set if it was.
bool AddArgument(internal::Arguments& arguments, PyObject* value, Form form, bool by_name, bool* pickled) {
  if (IsRef(value) && !by_name) {
    arguments.AddRef(EntryOf(value));
    return true;
  }
  Encoded encoded;
  if (PyLong_CheckExact(value) || value == Py_None) {  // never large, contain nothing
    if (!encoded.Prepare(value, form)) return false;
    encoded.Write(arguments.AddValue(encoded.size()));
    return true;
  }
  internal::RefScope inner;
  if (!encoded.Prepare(value, form)) return false;
  *pickled |= encoded.pickled();
  if (encoded.size() <= internal::kInlineArgument) {
    encoded.Write(arguments.AddValue(encoded.size()));
    // What it contains goes with the call.
    arguments.scope->entries.insert(arguments.scope->entries.end(), inner.entries.begin(), inner.entries.end());
    arguments.scope->actors.insert(arguments.scope->actors.end(), inner.actors.begin(), inner.actors.end());
    inner.entries.clear();
    inner.actors.clear();
    return true;
  }
  const auto stored = internal::Handle<internal::Entry>::Adopt(Store(encoded, inner));
  arguments.AddRef(stored.get());
  return true;
}

// Head, then all values. `values` has the positional ones first, then those of `names` (a tuple or nullptr).
bool AddCall(internal::Arguments& arguments, CallHead head, const std::string& name, PyObject* const* values,
             std::size_t positional, PyObject* names, std::uint64_t by_name, bool* pickled) {
  const Form form = head.kind >= CallKind::kNative ? Form::kPlain : Form::kPython;
  const std::size_t keywords = names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
  head.name = static_cast<std::uint16_t>(name.size());
  head.keywords = static_cast<std::uint32_t>(keywords);
  head.values = static_cast<std::uint32_t>(positional + keywords);
  std::size_t size = sizeof head + name.size();
  for (std::size_t i = 0; i < keywords; ++i) {
    Py_ssize_t length = 0;
    if (PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(names, i), &length) == nullptr) return false;
    if (length > UINT16_MAX) {
      PyErr_SetString(PyExc_ValueError, "manta: a keyword's name is too long");
      return false;
    }
    size += 2 + static_cast<std::size_t>(length);
  }
  std::byte* out = arguments.AddValue(size);
  std::memcpy(out, &head, sizeof head);
  out += sizeof head;
  std::memcpy(out, name.data(), name.size());
  out += name.size();
  for (std::size_t i = 0; i < keywords; ++i) {
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(names, i), &length);
    const auto count = static_cast<std::uint16_t>(length);
    std::memcpy(out, &count, sizeof count);
    std::memcpy(out + sizeof count, text, count);
    out += sizeof count + count;
  }
  for (std::size_t i = 0; i < positional + keywords; ++i) {
    if (!AddArgument(arguments, values[i], form, i < 64 && (by_name >> i & 1) != 0, pickled)) return false;
  }
  return true;
}

// What `.remote` is: callable, made ready for a session by `prepare`, which calls set_function or set_method.
struct CallObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* prepare;
  std::uint32_t session;
  std::uint32_t surroundings;  // that it was prepared in
  std::uint32_t returns;       // 0: the caller wants none
  bool announced;              // the daemon knows the function
  bool read_only;              // the method changes nothing
  CallHead head;
  PyObject* function;  // ObjectRef
  PyObject* actor;     // ActorRef
  const internal::Plan* plan;
  std::string* name;      // of the method
  std::uint64_t by_name;  // parameters (bits) of C++ functions that are Refs
};
PyTypeObject* call_type = nullptr;
std::uint32_t session = 1;  // counts clusters: what was published in an earlier one is gone
// What the running task hands on to its children's options (_options.py), by number; 0: nothing. Guarded by the GIL.
std::uint32_t surroundings = 0;

PyObject* Results(CallObject* self, internal::Entry** entries) {
  if (self->returns == 1) return NewRef(entries[0]);
  if (self->returns == 0) {
    internal::Release(entries[0]);
    return Py_NewRef(Py_None);
  }
  Obj list(PyList_New(self->returns));
  for (std::uint32_t i = 0; i < self->returns; ++i) {
    PyObject* ref = list ? NewRef(entries[i]) : nullptr;
    if (!list) internal::Release(entries[i]);
    if (list && ref == nullptr) list = Obj();
    if (list) PyList_SET_ITEM(list.get(), i, ref);
  }
  return list.release();
}

PyObject* Invoke(PyObject* object, PyObject* const* args, std::size_t flags, PyObject* names) {
  auto* self = reinterpret_cast<CallObject*>(object);
  // An actor's methods run where the actor is, whatever surrounds the call.
  if (self->session != session || (self->surroundings != surroundings && self->actor == nullptr)) {
    const Obj done(PyObject_CallOneArg(self->prepare, object));
    if (!done) return nullptr;
    if (self->session != session) {
      PyErr_SetString(PyExc_RuntimeError, "manta: the cluster ended while a call was being made");
      return nullptr;
    }
  }
  return Guard([&]() -> PyObject* {
    internal::RefScope scope;
    ArgumentsScope use;
    use.arguments.scope = &scope;
    if (self->function != nullptr && !self->announced) {
      std::byte ignored[internal::kRefBytes];
      internal::EncodeRef(EntryOf(self->function), ignored);
    }
    static const std::string no_name;
    const std::string& name = self->name == nullptr ? no_name : *self->name;
    bool pickled = false;
    if (!AddCall(use.arguments, self->head, name, args, static_cast<std::size_t>(PyVectorcall_NARGS(flags)), names,
                 self->by_name, &pickled))
      return nullptr;
    internal::Entry* few[8];
    std::vector<internal::Entry*> many;
    internal::Entry** out = few;
    const std::uint32_t count = self->returns == 0 ? 1 : self->returns;
    const std::uint32_t loose = pickled ? internal::kLooseCall : 0;
    if (count > 8) {
      many.resize(count);
      out = many.data();
    }
    if (self->actor == nullptr) {
      internal::Submit(TheSite(), use.arguments, scope, self->plan, count | loose, out);
    } else {
      internal::CallActor(reinterpret_cast<ActorObject*>(self->actor)->entry, TheSite(), use.arguments, scope,
                          self->plan, count | loose | (self->read_only ? internal::kReadOnlyCall : 0), out);
    }
    self->announced = true;
    return Results(self, out);
  });
}

void CallDealloc(PyObject* object) {
  auto* self = reinterpret_cast<CallObject*>(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->prepare);
  Py_XDECREF(self->function);
  Py_XDECREF(self->actor);
  delete self->name;
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

int CallTraverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<CallObject*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->prepare);
  return 0;
}

int CallClear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<CallObject*>(object)->prepare);
  return 0;
}

bool SetReturns(CallObject* self, unsigned long returns) {
  if (returns > kMostReturns) {
    PyErr_Format(PyExc_ValueError, "num_returns=%lu is more than %u", returns, kMostReturns);
    return false;
  }
  self->returns = static_cast<std::uint32_t>(returns);
  return true;
}

// set_function(function: ObjectRef, plan: int, returns: int, retry_all: bool)
PyObject* SetFunction(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<CallObject*>(object);
  PyObject* function = nullptr;
  unsigned long long plan = 0;
  unsigned long returns = 0;
  int retry = 0;
  if (!PyArg_ParseTuple(args, "O!Kkp", ref_type, &function, &plan, &returns, &retry)) return nullptr;
  if (!SetReturns(self, returns)) return nullptr;
  return Guard([&] {
    self->head.kind = CallKind::kFunction;
    self->head.flags = retry != 0 ? CallHead::kRetryAll : 0;
    internal::EncodeRef(EntryOf(function), self->head.function);
    Py_XSETREF(self->function, Py_NewRef(function));
    self->plan = reinterpret_cast<const internal::Plan*>(plan);
    self->announced = false;
    self->session = session;
    self->surroundings = surroundings;
    return Py_NewRef(Py_None);
  });
}

// set_method(actor: ActorRef, name: str, plan: int, returns: int, retry_all: bool, retry: ObjectRef | None,
// read_only: bool); `retry`: published exception classes
PyObject* SetMethod(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<CallObject*>(object);
  PyObject* actor = nullptr;
  const char* name = nullptr;
  unsigned long long plan = 0;
  unsigned long returns = 0;
  int retry_all = 0;
  PyObject* retry = nullptr;
  int read_only = 0;
  if (!PyArg_ParseTuple(args, "O!sKkpOp", actor_type, &actor, &name, &plan, &returns, &retry_all, &retry, &read_only))
    return nullptr;
  self->read_only = read_only != 0;
  if (!SetReturns(self, returns)) return nullptr;
  return Guard([&] {
    self->head.kind = CallKind::kMethod;
    self->head.flags = retry_all != 0 ? CallHead::kRetryAll : 0;
    if (IsRef(retry)) {
      self->head.flags |= CallHead::kRetrySome;
      internal::EncodeRef(EntryOf(retry), self->head.function);
      Py_XSETREF(self->function, Py_NewRef(retry));
    }
    Py_XSETREF(self->actor, Py_NewRef(actor));
    delete self->name;
    self->name = new std::string(name);
    self->plan = reinterpret_cast<const internal::Plan*>(plan);
    self->session = session;
    return Py_NewRef(Py_None);
  });
}

// set_native(actor: ActorRef | None, name: str, plan: int, returns: int, by_name: int, read_only: bool)
PyObject* SetNative(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<CallObject*>(object);
  PyObject* actor = nullptr;
  const char* name = nullptr;
  unsigned long long plan = 0;
  unsigned long returns = 0;
  unsigned long long by_name = 0;
  int read_only = 0;
  if (!PyArg_ParseTuple(args, "OsKkKp", &actor, &name, &plan, &returns, &by_name, &read_only)) return nullptr;
  self->read_only = read_only != 0;
  if (actor != Py_None && ActorOf(actor) == nullptr) return nullptr;
  if (!SetReturns(self, returns)) return nullptr;
  self->head.kind = actor == Py_None ? CallKind::kNative : CallKind::kNativeMethod;
  Py_XSETREF(self->actor, actor == Py_None ? nullptr : Py_NewRef(actor));
  delete self->name;
  self->name = new std::string(name);
  self->plan = reinterpret_cast<const internal::Plan*>(plan);
  self->by_name = by_name;
  self->session = session;
  self->surroundings = surroundings;
  Py_RETURN_NONE;
}

PyMethodDef call_methods[] = {
    {"set_native", SetNative, METH_VARARGS, nullptr},
    {"set_function", SetFunction, METH_VARARGS, nullptr},
    {"set_method", SetMethod, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CallObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot call_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&CallDealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(&CallTraverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&CallClear)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_methods, call_methods},
    {Py_tp_members, call_members},
    {0, nullptr},
};
PyType_Spec call_spec = {
    "manta._core.Call", sizeof(CallObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    call_slots};

// new_call(prepare) -> Call
PyObject* NewCall(PyObject*, PyObject* prepare) {
  auto* self = PyObject_GC_New(CallObject, call_type);
  if (self == nullptr) return nullptr;
  self->vectorcall = &Invoke;
  self->prepare = Py_NewRef(prepare);
  self->session = 0;
  self->surroundings = 0;
  self->returns = 1;
  self->announced = false;
  self->read_only = false;
  new (&self->head) CallHead();
  self->function = nullptr;
  self->actor = nullptr;
  self->plan = nullptr;
  self->name = nullptr;
  self->by_name = 0;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(self));
  return reinterpret_cast<PyObject*>(self);
}

bool ReadResources(PyObject* dict, std::map<std::string, double>* out) {
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    const char* name = PyUnicode_AsUTF8(key);
    const double amount = PyFloat_AsDouble(value);
    if (name == nullptr || PyErr_Occurred() != nullptr) return false;
    (*out)[name] = amount;
  }
  return true;
}

// intern(name, cpus, gpus, resources, retries, timeout_us, priority, where, call_retries) -> int; `where` as
// ReadPlacement reads it, `call_retries` an int or None
PyObject* Intern(PyObject*, PyObject* args) {
  TaskOptions options;
  const char* name = nullptr;
  PyObject* resources = nullptr;
  PyObject* where = nullptr;
  PyObject* call_retries = nullptr;
  long long timeout = 0;
  if (!PyArg_ParseTuple(args, "sddO!iLiOO", &name, &options.cpus, &options.gpus, &PyDict_Type, &resources,
                        &options.retries, &timeout, &options.priority, &where, &call_retries) ||
      !ReadResources(resources, &options.resources) || !ReadPlacement(where, &options.placement))
    return nullptr;
  options.name = name;
  options.timeout = std::chrono::microseconds(timeout);
  if (call_retries != Py_None) {
    options.call_retries = PyLong_AsLongLong(call_retries);
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
  return Guard(
      [&] { return PyLong_FromUnsignedLongLong(reinterpret_cast<std::uintptr_t>(internal::Intern(options))); });
}

// An int, or None: unset.
bool ReadCount(PyObject* value, std::optional<std::int64_t>* out) {
  if (value == Py_None) return true;
  *out = PyLong_AsLongLong(value);
  return PyErr_Occurred() == nullptr;
}

// create_actor(cls: ObjectRef or str (a C++ class: "library\nClass"), …, args: tuple, kwargs: dict) -> ActorRef
PyObject* CreateActor(PyObject*, PyObject* args) {
  PyObject* cls = nullptr;
  const char* class_name = nullptr;
  const char* name = nullptr;
  const char* space = nullptr;
  PyObject* resources = nullptr;
  PyObject* positional = nullptr;
  PyObject* keywords = nullptr;
  ActorSettings settings;
  int detached = 0;
  int get_if_exists = 0;
  PyObject* restarts = nullptr;
  PyObject* retries = nullptr;
  int replay = 1;
  unsigned long long checkpoint_calls = 0;
  long long checkpoint_us = 0;
  int ordered = 1;
  PyObject* where = nullptr;
  const char* about = nullptr;
  Py_ssize_t about_size = 0;
  if (!PyArg_ParseTuple(args, "OsssddO!ppOOpKLIpO!O!Oy#", &cls, &class_name, &name, &space, &settings.cpus,
                        &settings.gpus, &PyDict_Type, &resources, &detached, &get_if_exists, &restarts, &retries,
                        &replay, &checkpoint_calls, &checkpoint_us, &settings.concurrency, &ordered, &PyTuple_Type,
                        &positional, &PyDict_Type, &keywords, &where, &about, &about_size) ||
      !ReadResources(resources, &settings.resources) || !ReadPlacement(where, &settings.placement) ||
      !ReadCount(restarts, &settings.max_restarts) || !ReadCount(retries, &settings.max_call_retries))
    return nullptr;
  settings.name = name;
  settings.space = space;
  settings.detached = detached != 0;
  settings.get_if_exists = get_if_exists != 0;
  settings.replay = replay != 0;
  settings.checkpoint_calls = checkpoint_calls;
  settings.checkpoint_time = std::chrono::microseconds(checkpoint_us);
  settings.ordered = ordered != 0;
  settings.about.assign(about, static_cast<std::size_t>(about_size));
  std::vector<PyObject*> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positional); ++i) values.push_back(PyTuple_GET_ITEM(positional, i));
  const Obj names(PySequence_Tuple(keywords));
  if (!names) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i)
    values.push_back(PyDict_GetItem(keywords, PyTuple_GET_ITEM(names.get(), i)));
  return Guard([&]() -> PyObject* {
    internal::RefScope scope;
    ArgumentsScope use;
    use.arguments.scope = &scope;
    CallHead head;
    std::string native;
    if (IsRef(cls)) {
      head.kind = CallKind::kCreate;
      internal::EncodeRef(EntryOf(cls), head.function);  // into the scope: the actor keeps its class
    } else {
      head.kind = CallKind::kNativeCreate;
      const char* text = PyUnicode_AsUTF8(cls);
      if (text == nullptr) return nullptr;
      native = text;
    }
    // What is not there yet the constructor waits for, in the actor's process: its caller goes on.
    for (std::size_t i = 0; head.kind == CallKind::kCreate && i < values.size() && i < 32; ++i) {
      if (IsRef(values[i]) && !internal::IsReady(EntryOf(values[i]))) head.awaited |= 1U << i;
    }
    bool pickled = false;
    if (!AddCall(use.arguments, head, native, values.data(), static_cast<std::size_t>(PyTuple_GET_SIZE(positional)),
                 names.get(), head.awaited, &pickled))
      return nullptr;
    internal::ActorEntry* actor = nullptr;
    {
      const NoGil free;
      actor = internal::CreateActor(TheSite(), use.arguments, scope, settings, class_name);
    }
    return NewActor(actor);
  });
}

// surround(number) -> the number before: calls are prepared again for other surroundings.
PyObject* Surround(PyObject*, PyObject* number) {
  const unsigned long next = PyLong_AsUnsignedLong(number);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return PyLong_FromUnsignedLong(std::exchange(surroundings, static_cast<std::uint32_t>(next)));
}

PyObject* NextSession(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(++session); }
PyObject* Session(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(session); }

// May throw; nullptr: a Python error is set.
PyObject* PutValue(PyObject* value) {
  internal::RefScope scope;
  Encoded encoded;
  if (!encoded.Prepare(value)) return nullptr;
  if (encoded.size() > internal::kInlineArgument) return NewRef(Store(encoded, scope));
  std::byte* out = nullptr;
  internal::Entry* entry = internal::PutBegin(encoded.size(), &out);
  encoded.Write(out);
  internal::PutEnd(entry, scope);
  return NewRef(entry);
}

// put(value, /) -> ObjectRef
PyObject* Put(PyObject*, PyObject* value) {
  return Guard([&] { return PutValue(value); });
}

// put_durable(value, /) -> ObjectRef, when the value is on disk.
PyObject* PutDurable(PyObject*, PyObject* value) {
  return Guard([&]() -> PyObject* {
    Obj ref(PutValue(value));
    if (!ref) return nullptr;
    {
      const NoGil free;
      internal::MakeDurable(EntryOf(ref.get()));
    }
    return ref.release();
  });
}

// publish(value, table: dict, digest) -> ObjectRef: put, unless the table has a Ref under the digest of the bytes.
PyObject* Publish(PyObject*, PyObject* args) {
  PyObject* value = nullptr;
  PyObject* table = nullptr;
  PyObject* digest = nullptr;
  if (!PyArg_ParseTuple(args, "OO!O", &value, &PyDict_Type, &table, &digest)) return nullptr;
  return Guard([&]() -> PyObject* {
    internal::RefScope scope;
    Encoded encoded;
    if (!encoded.Prepare(value)) return nullptr;
    const Obj bytes(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(encoded.size())));
    if (!bytes) return nullptr;
    encoded.Write(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.get())));
    const Obj key(PyObject_CallOneArg(digest, bytes.get()));
    if (!key) return nullptr;
    if (PyObject* known = PyDict_GetItemWithError(table, key.get()); known != nullptr || PyErr_Occurred() != nullptr)
      return Py_XNewRef(known);
    Obj ref(NewRef(Store(encoded, scope)));
    if (!ref) return nullptr;
    {
      const NoGil free;
      internal::KeepForReplay(EntryOf(ref.get()));
    }
    if (PyDict_SetItem(table, key.get(), ref.get()) != 0) return nullptr;
    return ref.release();
  });
}

PyMethodDef functions[] = {
    {"publish", Publish, METH_VARARGS, nullptr},
    {"new_call", NewCall, METH_O, nullptr},
    {"intern", Intern, METH_VARARGS, nullptr},
    {"create_actor", CreateActor, METH_VARARGS, nullptr},
    {"next_session", NextSession, METH_NOARGS, nullptr},
    {"session", Session, METH_NOARGS, nullptr},
    {"surround", Surround, METH_O, nullptr},
    {"put", Put, METH_O, nullptr},
    {"put_durable", PutDurable, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool AddCallTypes(PyObject* module) {
  call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&call_spec));
  return call_type != nullptr && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace manta::python
