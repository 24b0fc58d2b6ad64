#include "run.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "calls.h"
#include "interrupt.h"
#include "manta/internal/plain_call.h"
#include "refs.h"
#include "timeline.h"
#include "values.h"

namespace manta::python {
namespace {

// A thread of the engine that runs Python. The interpreter's record of it is kept between calls: making one costs
// a microsecond, and threading.local would forget.
class Gil {
 public:
  Gil() {
    thread_local const bool known = [] {
      PyGILState_Ensure();
      PyEval_SaveThread();
      return true;
    }();
    static_cast<void>(known);
    state_ = PyGILState_Ensure();
  }
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

struct Function {
  PyObject* code = nullptr;   // what to call
  PyObject* retry = nullptr;  // exception classes worth another try, or None
  bool is_async = false;      // a class with coroutines among its methods
  long calls_left = -1;       // of this process; -1: any number
};

bool in_async_actor = false;  // the actor of this process

struct IdHash {
  std::size_t operator()(const std::array<std::byte, 16>& id) const {
    std::size_t hash = 0;
    std::memcpy(&hash, id.data(), sizeof hash);  // random already
    return hash;
  }
};

// Functions and classes already unpickled here, by the id of their object. Guarded by the GIL.
std::unordered_map<std::array<std::byte, 16>, Function, IdHash>& Functions() {
  static auto* functions = new std::unordered_map<std::array<std::byte, 16>, Function, IdHash>();
  return *functions;
}

// What load_function or load_named gave.
Function FromLoaded(PyObject* loaded) {
  Function made;
  made.code = Py_NewRef(PyTuple_GET_ITEM(loaded, 0));
  made.retry = Py_NewRef(PyTuple_GET_ITEM(loaded, 1));
  made.is_async = PyTuple_GET_ITEM(loaded, 2) == Py_True;
  made.calls_left = PyLong_AsLong(PyTuple_GET_ITEM(loaded, 3));
  return made;
}

// "module\nname", as another language names it. nullptr: a Python error is set.
Function* FunctionNamed(const std::string& name) {
  static auto* functions = new std::unordered_map<std::string, Function>();  // guarded by the GIL
  if (const auto it = functions->find(name); it != functions->end()) return &it->second;
  const std::size_t line = name.find('\n');
  if (line == std::string::npos) throw CorruptError("a Python function is named without its module");
  const Obj loaded(
      PyObject_CallFunction(hooks.load_named, "ss", name.substr(0, line).c_str(), name.c_str() + line + 1));
  return loaded ? &functions->emplace(name, FromLoaded(loaded.get())).first->second : nullptr;
}

// nullptr: a Python error is set.
Function* FunctionOf(const CallHead& head) {
  std::array<std::byte, 16> id;
  std::memcpy(id.data(), head.function, id.size());
  auto& functions = Functions();
  if (const auto it = functions.find(id); it != functions.end()) return &it->second;
  KeepAlive keep;
  internal::View view;
  const auto entry = internal::Handle<internal::Entry>::Adopt(internal::DecodeRef(head.function));
  {
    const NoGil free;
    view = internal::Await(entry.get(), internal::kForever, &keep);
  }
  const Obj published(DecodeValue(view, keep));
  internal::Retain(entry.get());
  const Obj ref(NewRef(entry.get()));
  if (!published || !ref) return nullptr;
  const Obj loaded(PyObject_CallFunctionObjArgs(hooks.load_function, published.get(), ref.get(), nullptr));
  if (!loaded) return nullptr;
  return &functions.emplace(id, FromLoaded(loaded.get())).first->second;
}

// What a SystemExit asks for.
internal::WorkerEnd EndOf(PyObject* error) {
  internal::WorkerEnd end{1, false, {}};
  const Obj told(PyObject_CallOneArg(hooks.leaving, error));
  const char* why = nullptr;
  int for_good = 0;
  if (told && PyArg_ParseTuple(told.get(), "ips", &end.status, &for_good, &why) != 0) {
    end.for_good = for_good != 0;
    end.why = why;
  }
  PyErr_Clear();
  return end;
}

// The current Python error as the exception that the engine carries home.
[[noreturn]] void ThrowPythonError(bool retry_all, PyObject* retry, bool cancelled) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  const Obj owned_type(type);
  const Obj owned_value(value);
  const Obj owned_trace(trace);
  if (!cancelled && PyErr_GivenExceptionMatches(value, PyExc_SystemExit) != 0) throw internal::WorkerExit(EndOf(value));
  bool retryable = retry_all;
  if (!retryable && retry != nullptr && retry != Py_None) retryable = PyErr_GivenExceptionMatches(value, retry) != 0;
  const Obj story(PyObject_CallFunctionObjArgs(hooks.describe, value, cancelled ? Py_True : Py_False, nullptr));
  std::string message = "an exception that could not be described";
  std::string payload;
  if (story) {
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(story.get(), 0), &size); text != nullptr)
      message.assign(text, static_cast<std::size_t>(size));
    PyObject* bytes = PyTuple_GET_ITEM(story.get(), 1);
    payload.assign(PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes)));
  }
  PyErr_Clear();
  throw internal::ForeignError(cancelled ? Code::kCancelled : Code::kTaskFailed, std::move(message), "python",
                               std::move(payload), retryable && !cancelled);
}

void Return(internal::Invocation& call, std::uint32_t index, Encoded& value) {
  std::byte* out = nullptr;
  if (value.size() <= 4096) {
    out = call.Return(index, value.size());
  } else {
    const NoGil free;  // a full store lets us wait
    out = call.Return(index, value.size());
  }
  value.Write(out);
  if (value.pickled()) internal::NotCompared(call);
}

// false: a Python error is set.
bool ReturnOne(internal::Invocation& call, PyObject* result, Form form) {
  Encoded value;
  if (!value.Prepare(result, form)) return false;
  Return(call, 0, value);
  return true;
}

// One of several values. The Refs inside it are noted after Return, which ends the value before: else they would be
// that one's. false: a Python error is set.
bool ReturnItem(internal::Invocation& call, std::uint32_t index, PyObject* item, Form form) {
  Encoded value;
  std::vector<internal::Entry*> entries;
  std::vector<internal::ActorEntry*> actors;
  {
    internal::RefScope scope;
    if (!value.Prepare(item, form)) return false;
    entries.swap(scope.entries);
    actors.swap(scope.actors);
  }
  Return(call, index, value);
  std::byte name[internal::kRefBytes];
  for (internal::Entry* entry : entries) {
    internal::EncodeRef(entry, name);
    internal::Release(entry);
  }
  for (internal::ActorEntry* actor : actors) {
    internal::EncodeActor(actor, name);
    internal::Release(actor);
  }
  return true;
}

// Each value leaves when it is yielded, and stays when a later one raises. The generator is not asked for more than
// `count` values.
bool ReturnYielded(internal::Invocation& call, PyObject* iterator, std::uint32_t count, Form form) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const Obj item(PyIter_Next(iterator));
    if (!item) {
      if (PyErr_Occurred() == nullptr)
        PyErr_Format(PyExc_ValueError, "the task yielded %u values, but num_returns=%u", i, count);
      return false;
    }
    if (!ReturnItem(call, i, item.get(), form)) return false;
    if (i + 1 < count) internal::EndReturn(call);
  }
  return true;
}

bool ReturnSeveral(internal::Invocation& call, PyObject* result, std::uint32_t count, Form form) {
  if (count > 0 && PyGen_CheckExact(result)) return ReturnYielded(call, result, count, form);
  if (Py_TYPE(result)->tp_iter == nullptr && PySequence_Check(result) == 0) {
    PyErr_Format(PyExc_ValueError, "the task returned %.100s, but num_returns=%u asks for as many values",
                 Py_TYPE(result)->tp_name, count);
    return false;
  }
  const Obj items(PySequence_Tuple(result));
  if (!items) return false;  // what its iterator raised
  if (PyTuple_GET_SIZE(items.get()) != static_cast<Py_ssize_t>(count)) {
    PyErr_Format(PyExc_ValueError, "the task returned %zd values, but num_returns=%u", PyTuple_GET_SIZE(items.get()),
                 count);
    return false;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!ReturnItem(call, i, PyTuple_GET_ITEM(items.get(), i), form)) return false;
  }
  return true;
}

void DestroyActor(void* self) {
  const Gil gil;
  Py_DECREF(static_cast<PyObject*>(self));
}

// What the engine says of an actor that could not be saved or loaded.
[[noreturn]] void ThrowText() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Obj owned_type(type);
  const Obj owned_value(value);
  const Obj owned_trace(trace);
  const Obj text(value == nullptr ? nullptr : PyObject_Str(value));
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string story = type == nullptr ? "an exception" : reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (words != nullptr) story = story + ": " + words;
  PyErr_Clear();
  throw std::runtime_error(story);
}

void SaveActor(void* self, std::vector<std::byte>* out) {
  const Gil gil;
  const Obj state(PyObject_CallOneArg(hooks.save_actor, static_cast<PyObject*>(self)));
  Encoded value;
  if (!state || !value.Prepare(state.get())) ThrowText();
  out->resize(value.size());
  value.Write(out->data());
}

void LoadActor(void** self, std::span<const std::byte> state) {
  const Gil gil;
  const Obj value(DecodeValue({state.data(), state.size()}, {}));
  if (!value) ThrowText();
  auto* actor = static_cast<PyObject*>(*self);
  PyObject* loaded = PyObject_CallFunctionObjArgs(hooks.load_actor, actor, value.get(), nullptr);
  if (loaded == nullptr) ThrowText();
  *self = loaded;
  Py_DECREF(actor);
}

// The value of a Ref that was not ready when the actor was made. nullptr: a Python error is set.
PyObject* AwaitArgument(PyObject* ref) {
  KeepAlive keep;
  internal::View view;
  {
    const NoGil free;
    view = internal::Await(EntryOf(ref), internal::kForever, &keep);
  }
  return DecodeValue(view, keep);
}

// The method of that name. An attribute of the object that has the same name and cannot be called does not hide it.
PyObject* MethodOf(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GetAttr(self, name);
  if (found == nullptr || PyCallable_Check(found) != 0) return found;
  PyObject* of_class = _PyType_Lookup(Py_TYPE(self), name);
  if (of_class == nullptr || Py_TYPE(of_class)->tp_descr_get == nullptr) return found;
  Py_DECREF(found);
  const Obj method(Py_NewRef(of_class));
  return Py_TYPE(of_class)->tp_descr_get(of_class, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

// The call's arguments as Python objects, taken from it one by one.
class Values {
 public:
  ~Values() {
    for (PyObject* value : values_) Py_DECREF(value);
    Py_XDECREF(names_);
  }
  // false: a Python error is set.
  bool Read(internal::Invocation& call, const CallHead& head, internal::View text) {
    values_.reserve(head.values + 1);
    for (std::uint32_t i = 0; i < head.values; ++i) {
      KeepAlive keep;
      PyObject* value = DecodeValue(call.Next(&keep), keep);
      if (value == nullptr) return false;
      if (i < 32 && (head.awaited >> i & 1) != 0 && IsRef(value)) {
        const Obj ref(value);
        value = AwaitArgument(value);
        if (value == nullptr) return false;
      }
      values_.push_back(value);
    }
    if (head.keywords == 0) return true;
    names_ = PyTuple_New(head.keywords);
    const std::byte* at = text.data;
    const std::byte* end = text.data + text.size;
    for (std::uint32_t i = 0; names_ != nullptr && i < head.keywords; ++i) {
      std::uint16_t length = 0;
      if (end - at < 2) throw CorruptError("a call's keywords are cut off");
      std::memcpy(&length, at, sizeof length);
      at += sizeof length;
      if (end - at < length) throw CorruptError("a call's keywords are cut off");
      PyObject* name = PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(at), length, nullptr);
      if (name == nullptr) return false;
      PyUnicode_InternInPlace(&name);
      PyTuple_SET_ITEM(names_, i, name);
      at += length;
    }
    return names_ != nullptr;
  }
  PyObject* Call(PyObject* code) {
    const std::size_t keywords = names_ == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names_));
    return PyObject_Vectorcall(code, values_.data(), values_.size() - keywords, names_);
  }

 private:
  std::vector<PyObject*> values_;
  PyObject* names_ = nullptr;
};

// false: a Python error is set.
bool ReturnAll(internal::Invocation& call, PyObject* result, Form form) {
  const std::uint32_t count = call.returns();
  return count == 1 ? ReturnOne(call, result, form) : ReturnSeveral(call, result, count, form);
}

// ---- actors with coroutines ----

struct Deferred {
  Form form = Form::kPython;
  std::int64_t begin = 0;
  bool retry_all = false;
  PyObject* retry = nullptr;  // lives for ever; may be null
};
// Guarded by the GIL.
std::unordered_map<const internal::Invocation*, Deferred>& DeferredCalls() {
  static auto* calls = new std::unordered_map<const internal::Invocation*, Deferred>();
  return *calls;
}

bool Step(bool wait) {
  const Gil gil;
  const Obj busy(PyObject_CallOneArg(hooks.step_async, wait ? Py_True : Py_False));
  if (!busy && PyErr_ExceptionMatches(PyExc_SystemExit) != 0) {  // in a task of the loop that is no call
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const Obj owned_type(type);
    const Obj owned_value(value);
    const Obj owned_trace(trace);
    internal::EndWorker(EndOf(value));
    return true;
  }
  if (!busy) PyErr_WriteUnraisable(hooks.step_async);
  return busy.get() == Py_True;
}

// What FinishAsync was given, for the trampoline that it resumes.
PyObject* finished_value = nullptr;
PyObject* finished_error = nullptr;

void EndAsync(internal::Invocation& call) {
  const bool cancelled = finished_error != nullptr && internal::IsCancelled(call);
  bool done = false;
  const Deferred about = DeferredCalls().extract(&call).mapped();
  try {
    if (finished_error != nullptr) {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(finished_error)), finished_error);
    } else {
      done = ReturnAll(call, finished_value, about.form);
    }
  } catch (...) {
    RaiseCurrent();
  }
  Record(call, about.begin, !done);
  if (!done) ThrowPythonError(about.retry_all, about.retry, cancelled);
}

// finish_async(number, value, error or None)
PyObject* FinishAsync(PyObject*, PyObject* args) {
  unsigned long long number = 0;
  PyObject* value = nullptr;
  PyObject* error = nullptr;
  if (!PyArg_ParseTuple(args, "KOO", &number, &value, &error)) return nullptr;
  finished_value = value;
  finished_error = error == Py_None ? nullptr : error;
  return Guard([&] {
    internal::Resume(reinterpret_cast<internal::Invocation*>(number), &EndAsync);
    return Py_NewRef(Py_None);
  });
}

// call_context(number) -> (label, task id) of a call that Resume has not ended
PyObject* CallContext(PyObject*, PyObject* number) {
  const unsigned long long address = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const auto& call = *reinterpret_cast<internal::Invocation*>(address);
  return Guard([&] { return Py_BuildValue("ss", internal::LabelOf(call).c_str(), internal::TaskIdOf(call).c_str()); });
}

// is_cancelled(number)
PyObject* IsCancelled(PyObject*, PyObject* number) {
  const unsigned long long call = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return PyBool_FromLong(internal::IsCancelled(*reinterpret_cast<internal::Invocation*>(call)));
}

PyObject* IsOwnCancelled(PyObject*, PyObject*) { return PyBool_FromLong(OwnCallCancelled()); }

bool BeginAsync(internal::Invocation& call, PyObject* coroutine) {
  const Obj number(PyLong_FromUnsignedLongLong(reinterpret_cast<std::uintptr_t>(&call)));
  if (!number) return false;
  const Obj done(PyObject_CallFunctionObjArgs(hooks.begin_async, coroutine, number.get(), nullptr));
  if (done) internal::Defer(call);
  return static_cast<bool>(done);
}

// An actor whose class says what it is called has that before each line that it prints.
void NameOutput(PyObject* actor) {
  constexpr std::size_t kMostBytes = 200;
  if (Py_TYPE(actor)->tp_repr == PyBaseObject_Type.tp_repr) return;
  const Obj text(PyObject_Repr(actor));
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (words == nullptr) return PyErr_Clear();
  std::string label(words);
  label.resize(std::min({label.size(), label.find('\n'), kMostBytes}));
  if (!label.empty()) internal::SetOutputLabel(label);
}

bool Run(internal::Invocation& call, const CallHead& head, internal::View text, PyObject** retry) {
  const bool creates = head.kind == CallKind::kCreate || head.kind == CallKind::kNamedCreate;
  const bool plain = (head.flags & CallHead::kPlain) != 0;
  Obj code;
  if (head.kind == CallKind::kMethod) {
    if ((head.flags & CallHead::kRetrySome) != 0) {
      const Function* function = FunctionOf(head);
      if (function == nullptr) return false;
      *retry = function->retry;
    }
    const Obj name(PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(text.data), head.name, nullptr));
    if (!name) return false;
    const bool special = head.name > 8 && std::memcmp(text.data, "__manta_", 8) == 0;
    auto* self = static_cast<PyObject*>(call.self);
    code = Obj(special ? PyObject_CallFunctionObjArgs(hooks.special, self, name.get(), nullptr)
                       : MethodOf(self, name.get()));
    if (!code) return false;
  } else {
    const bool named = head.kind == CallKind::kNamed || head.kind == CallKind::kNamedCreate;
    Function* function =
        named ? FunctionNamed({reinterpret_cast<const char*>(text.data), head.name}) : FunctionOf(head);
    if (function == nullptr) return false;
    if (function->calls_left > 0 && --function->calls_left == 0) internal::LeaveAfterCall();
    *retry = function->retry;
    code = Obj::Share(function->code);
    if (creates && function->is_async) {
      in_async_actor = true;
      internal::SetActorStep(call, &Step);
    }
  }
  text.data += head.name;
  text.size -= head.name;
  Obj result;
  {
    Values values;
    if (!values.Read(call, head, text)) return false;
    result = Obj(values.Call(code.get()));
  }
  if (!result) return false;
  if (creates) {
    NameOutput(result.get());
    call.self = result.release();
    call.destroy = &DestroyActor;
    call.save = &SaveActor;
    call.load = &LoadActor;
    return true;
  }
  if (in_async_actor && PyCoro_CheckExact(result.get())) {
    DeferredCalls()[&call] = {plain ? Form::kPlain : Form::kPython, TimelineNow(),
                              (head.flags & CallHead::kRetryAll) != 0, *retry};
    return BeginAsync(call, result.get());
  }
  return ReturnAll(call, result.get(), plain ? Form::kPlain : Form::kPython);
}

// The engine sets the variable for the process; os.environ is a copy that does not see it.
void ShowGpus() {
  static std::optional<std::string> known;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr || known == text) return;
  known = text;
  const Obj os(PyImport_ImportModule("os"));
  const Obj environment(os ? PyObject_GetAttrString(os.get(), "environ") : nullptr);
  const Obj value(PyUnicode_FromString(text));
  if (!environment || !value || PyMapping_SetItemString(environment.get(), "CUDA_VISIBLE_DEVICES", value.get()) != 0)
    PyErr_Clear();
}

void SayFarewell(void* actor) {
  const Gil gil;
  auto* self = actor == nullptr ? Py_None : static_cast<PyObject*>(actor);
  const Obj done(PyObject_CallOneArg(hooks.farewell, self));
  if (!done) PyErr_Print();
}

void InWorker() {
  PyOS_AfterFork_Child();
  internal::SetFarewell(&SayFarewell);
  in_worker = true;
  const Obj module(PyImport_ImportModule("manta._worker"));
  const Obj done(module ? PyObject_CallMethod(module.get(), "begin", nullptr) : nullptr);
  if (!done) PyErr_Print();
  PyEval_SaveThread();  // for good: calls take the GIL one by one
}

PyObject* ServeForks(PyObject*, PyObject*) {
  if (const char* wanted = std::getenv("MANTA_TIMELINE"); wanted == nullptr || std::strcmp(wanted, "0") != 0)
    MakeTimeline();
  PyOS_BeforeFork();  // nothing runs between here and a fork
  internal::ServeForks(&InWorker);
  PyOS_AfterFork_Parent();
  Py_RETURN_NONE;
}

// write(fd, text): through the worker's labelled streams.
PyObject* Write(PyObject*, PyObject* args) {
  int fd = 0;
  const char* text = nullptr;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(args, "is#", &fd, &text, &size)) return nullptr;
  std::fwrite(text, 1, static_cast<std::size_t>(size), fd == 2 ? stderr : stdout);
  Py_RETURN_NONE;
}

// embed(): Python was started by a worker of a C++ program.
PyObject* Embed(PyObject*, PyObject*) {
  in_worker = true;
  internal::SetFarewell(&SayFarewell);
  Py_RETURN_NONE;
}

// C++ code that Python named: it needs no Python.
void RunNative(internal::Invocation& call, const CallHead& head, internal::View text) {
  const std::string_view words(reinterpret_cast<const char*>(text.data), head.name);
  const std::size_t line = words.find('\n');
  if (line == std::string_view::npos) throw CorruptError("a C++ function is named without its library");
  const std::string library(words.substr(0, line));
  const std::string name(words.substr(line + 1));
  internal::LoadPlainLibrary(library);
  const internal::PlainCode* code = internal::FindPlain(library, name);
  if (code == nullptr) throw NotFoundError("the library '" + library + "' here has no '" + name + "'");
  if (head.values != code->parameters || head.keywords != 0) {
    throw InvalidError(name + " takes " + std::to_string(code->parameters) + " positional arguments, not " +
                       std::to_string(head.values) + (head.keywords == 0 ? "" : ", and none by keyword"));
  }
  const std::int64_t begin = TimelineNow();
  try {
    code->trampoline(call);
  } catch (...) {
    Record(call, begin, true);
    throw;
  }
  Record(call, begin, false);
}

PyMethodDef functions[] = {
    {"embed", Embed, METH_NOARGS, nullptr},
    {"serve_forks", ServeForks, METH_NOARGS, nullptr},
    {"write", Write, METH_VARARGS, nullptr},
    {"finish_async", FinishAsync, METH_VARARGS, nullptr},
    {"is_cancelled", IsCancelled, METH_O, nullptr},
    {"call_context", CallContext, METH_O, nullptr},
    {"is_own_cancelled", IsOwnCancelled, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void RunPython(internal::Invocation& call) {
  KeepAlive keep;
  const internal::View view = call.Next(&keep);
  CallHead head;
  if (view.size < sizeof head) throw CorruptError("this is not a call of a Python function");
  std::memcpy(&head, view.data, sizeof head);
  const internal::View text{view.data + sizeof head, view.size - sizeof head};
  if (text.size < head.name) throw CorruptError("a call's method is cut off");
  if (head.kind >= CallKind::kNative) return RunNative(call, head, text);
  const std::int64_t begin = TimelineNow();
  Interruptible interruptible(call);
  const Gil gil;
  ShowGpus();
  PyObject* retry = nullptr;
  bool done = false;
  try {
    done = Run(call, head, text, &retry);
  } catch (const internal::ForeignError&) {
    throw;
  } catch (...) {
    RaiseCurrent();
  }
  const bool cancelled = interruptible.End();
  if (!in_async_actor || !DeferredCalls().contains(&call)) Record(call, begin, !done);  // else when it ends
  if (!done) ThrowPythonError((head.flags & CallHead::kRetryAll) != 0, retry, cancelled);
}

bool AddRunFunctions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace manta::python
