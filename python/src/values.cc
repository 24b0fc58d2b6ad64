#include "values.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "arrow.h"
#include "manta/internal/copy.h"
#include "plain.h"
#include "refs.h"

namespace manta::python {
namespace {

// As internal::PlainTag; those that need no walk.
enum Tag : unsigned char { kNone, kFalse, kTrue, kInt, kFloat, kText, kBytes, kTuple, kPickle };

constexpr Py_ssize_t kMostItems = 16;
constexpr int kMostDepth = 4;
constexpr std::size_t kAlign = 64;
constexpr std::size_t kNoGilFrom = std::size_t{1} << 18;

std::size_t Aligned(std::size_t at) { return (at + kAlign - 1) & ~(kAlign - 1); }

// Before a pickle. `count` buffers follow it, described by as many Part.
struct PickleHead {
  unsigned char tag = kPickle;
  unsigned char unused[3] = {};
  std::uint32_t count = 0;
  std::uint64_t length = 0;
};
struct Part {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
};

// 0: not one of the simple values.
std::size_t PlainSize(PyObject* value, int depth) {
  if (value == Py_None || value == Py_True || value == Py_False) return 1;
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyLong_Type) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    static_cast<void>(number);
    return overflow == 0 ? 9 : 0;
  }
  if (type == &PyFloat_Type) return 9;
  if (type == &PyUnicode_Type) {
    Py_ssize_t size = 0;
    if (PyUnicode_AsUTF8AndSize(value, &size) == nullptr) {
      PyErr_Clear();  // lone surrogates: pickle knows what to do
      return 0;
    }
    return 9 + static_cast<std::size_t>(size);
  }
  if (type == &PyBytes_Type) return 9 + static_cast<std::size_t>(PyBytes_GET_SIZE(value));
  if (type == &PyTuple_Type && depth < kMostDepth && PyTuple_GET_SIZE(value) <= kMostItems) {
    std::size_t size = 2;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      const std::size_t item = PlainSize(PyTuple_GET_ITEM(value, i), depth + 1);
      if (item == 0) return 0;
      size += item;
    }
    return size;
  }
  return 0;
}

std::byte* PutWord(std::byte* out, Tag tag, const void* word) {
  *out = static_cast<std::byte>(tag);
  std::memcpy(out + 1, word, 8);
  return out + 9;
}

std::byte* PutRun(std::byte* out, Tag tag, const char* from, Py_ssize_t length) {
  const std::uint64_t count = static_cast<std::uint64_t>(length);
  out = PutWord(out, tag, &count);
  if (count >= internal::kCopyLargeFrom) {
    const NoGil free;
    internal::CopyLarge(out, reinterpret_cast<const std::byte*>(from), count);
  } else if (count != 0) {
    std::memcpy(out, from, count);
  }
  return out + count;
}

std::byte* WritePlain(std::byte* out, PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyLong_Type) {
    const long long number = PyLong_AsLongLong(value);
    return PutWord(out, kInt, &number);
  }
  if (type == &PyFloat_Type) {
    const double number = PyFloat_AS_DOUBLE(value);
    return PutWord(out, kFloat, &number);
  }
  if (type == &PyUnicode_Type) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    return PutRun(out, kText, text, size);
  }
  if (type == &PyBytes_Type) return PutRun(out, kBytes, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
  if (type == &PyTuple_Type) {
    const Py_ssize_t count = PyTuple_GET_SIZE(value);
    *out++ = static_cast<std::byte>(kTuple);
    *out++ = static_cast<std::byte>(count);
    for (Py_ssize_t i = 0; i < count; ++i) out = WritePlain(out, PyTuple_GET_ITEM(value, i));
    return out;
  }
  *out = static_cast<std::byte>(value == Py_None ? kNone : value == Py_True ? kTrue : kFalse);
  return out + 1;
}

PyObject* Malformed() {
  PyErr_SetString(PyExc_ValueError,
                  "manta: these bytes are not a Python value; was the value made by a program in another language?");
  return nullptr;
}

// A list of nothing but ObjectRefs. Pickle needs five opcodes and a call for each of them: 320 ns, of which ours
// are 60.
bool IsListOfRefs(PyObject* value) {
  if (Py_TYPE(value) != &PyList_Type || PyList_GET_SIZE(value) == 0) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
    if (!IsRef(PyList_GET_ITEM(value, i))) return false;
  }
  return true;
}

// Memory of the store, as an object with a read-only buffer.
struct Look {
  PyObject_HEAD KeepAlive* keep;
  const std::byte* data;
  Py_ssize_t size;
};
int LookBuffer(PyObject* self, Py_buffer* buffer, int flags) {
  auto* look = reinterpret_cast<Look*>(self);
  return PyBuffer_FillInfo(buffer, self, const_cast<std::byte*>(look->data), look->size, 1, flags);
}
void LookDealloc(PyObject* self) {
  delete reinterpret_cast<Look*>(self)->keep;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
PyType_Slot look_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&LookDealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(&LookBuffer)},
    {0, nullptr},
};
PyType_Spec look_spec = {"manta._core.Look", sizeof(Look), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                         look_slots};
PyTypeObject* look_type = nullptr;

PyObject* NewLookInPlace(const std::byte* data, std::size_t size, const KeepAlive& keep) {
  auto* look = PyObject_New(Look, look_type);
  if (look == nullptr) return nullptr;
  look->keep = new KeepAlive(keep);
  look->data = data;
  look->size = static_cast<Py_ssize_t>(size);
  return reinterpret_cast<PyObject*>(look);
}

PyObject* Unpickle(internal::View view, const KeepAlive& keep) {
  PickleHead head;
  if (view.size < sizeof head) return Malformed();
  std::memcpy(&head, view.data, sizeof head);
  const std::size_t table = sizeof(Part) * static_cast<std::size_t>(head.count);
  if (head.count > view.size / sizeof(Part) || table > view.size - sizeof head ||
      head.length > view.size - sizeof head - table)
    return Malformed();
  const std::byte* pickle = view.data + sizeof head + table;
  const Obj text(PyMemoryView_FromMemory(reinterpret_cast<char*>(const_cast<std::byte*>(pickle)),
                                         static_cast<Py_ssize_t>(head.length), PyBUF_READ));
  if (!text) return nullptr;
  if (head.count == 0) return PyObject_CallOneArg(hooks.loads, text.get());

  const Obj buffers(PyTuple_New(static_cast<Py_ssize_t>(head.count)));
  if (!buffers) return nullptr;
  for (std::uint32_t i = 0; i < head.count; ++i) {
    Part part;
    std::memcpy(&part, view.data + sizeof head + i * sizeof part, sizeof part);
    if (part.at > view.size || part.length > view.size - part.at) return Malformed();
    PyObject* buffer = NewLook(view.data + part.at, part.length, keep);
    if (buffer == nullptr) return nullptr;
    PyTuple_SET_ITEM(buffers.get(), i, buffer);
  }
  static PyObject* const names = Py_BuildValue("(s)", "buffers");
  PyObject* arguments[] = {text.get(), buffers.get()};
  return PyObject_Vectorcall(hooks.loads, arguments, 1, names);
}

// read_only(buffer): the same memory, but so that writing to it crashes; itself if it is so anyway. For libraries that
// have no notion of read-only memory. In the process that made a value the store is mapped for writing.
PyObject* ReadOnly(PyObject*, PyObject* object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_ANY_CONTIGUOUS) != 0) return nullptr;
  const auto* data = static_cast<const std::byte*>(buffer.buf);
  const auto size = static_cast<std::size_t>(buffer.len);
  PyBuffer_Release(&buffer);  // `object` keeps it
  if (size == 0 || !internal::IsWritable(data)) return Py_NewRef(object);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(data) % page;
  const std::size_t whole = before + size;
  // Of shared memory, a size of zero means: once more, elsewhere.
  void* twin = mremap(const_cast<std::byte*>(data) - before, 0, whole, MREMAP_MAYMOVE);
  if (twin == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
  const KeepAlive keep(twin, [twin, whole, object](const void*) {
    munmap(twin, whole);
    Py_DECREF(object);  // the last Look goes with the GIL held
  });
  Py_INCREF(object);
  if (mprotect(twin, whole, PROT_READ) != 0) return PyErr_SetFromErrno(PyExc_OSError);
  return NewLookInPlace(static_cast<const std::byte*>(twin) + before, size, keep);
}

PyMethodDef functions[] = {
    {"read_only", ReadOnly, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* NewLook(const std::byte* data, std::size_t size, const KeepAlive& keep) {
  return keep != nullptr
             ? NewLookInPlace(data, size, keep)
             : PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data), static_cast<Py_ssize_t>(size));
}

Encoded::~Encoded() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
}

bool Encoded::Prepare(PyObject* value, Form form) {
  value_ = value;
  size_ = PlainSize(value, 0);
  return size_ != 0 || Other(form);
}

bool Encoded::Other(Form form) {
  bool failed = false;
  if (arrow_ = ExportArrow(value_, &failed); arrow_ != nullptr) {
    try {
      size_ = internal::ArrowSize(*arrow_);
      return true;
    } catch (const InvalidError&) {  // a type that we do not know: Python can pickle it
      if (form == Form::kPlain) throw;
      arrow_.reset();
      return Pickle();
    }
  }
  if (failed) return false;
  Py_buffer buffer;
  char kind = 0;
  const bool array = OpenArray(value_, &buffer, &kind);
  if (array) PyBuffer_Release(&buffer);
  if (!array && form == Form::kPython && !IsListOfRefs(value_)) return Pickle();
  PlainWalk walk(nullptr);
  if (!walk.Value(value_)) return false;
  size_ = walk.position();
  walked_ = true;
  return true;
}

bool Encoded::Pickle() {
  const Obj result(PyObject_CallOneArg(hooks.dumps, value_));
  if (!result) return false;
  pickle_ = Obj::Share(PyTuple_GET_ITEM(result.get(), 0));
  PyObject* list = PyTuple_GET_ITEM(result.get(), 1);
  const Py_ssize_t count = PyList_GET_SIZE(list);
  buffers_.reserve(static_cast<std::size_t>(count));
  size_ = sizeof(PickleHead) + sizeof(Part) * static_cast<std::size_t>(count) +
          static_cast<std::size_t>(PyBytes_GET_SIZE(pickle_.get()));
  for (Py_ssize_t i = 0; i < count; ++i) {
    // A PickleBuffer is contiguous, or numpy would have put the data into the pickle.
    Py_buffer buffer;
    if (PyObject_GetBuffer(PyList_GET_ITEM(list, i), &buffer, PyBUF_ANY_CONTIGUOUS) != 0) return false;
    buffers_.push_back(buffer);
    size_ = Aligned(size_) + static_cast<std::size_t>(buffer.len);
  }
  return true;
}

void Encoded::Write(std::byte* out) {
  if (pickle_) return WritePickle(out);
  if (arrow_ != nullptr) {
    const NoGil free;
    return internal::ArrowWrite(*arrow_, {out, size_});
  }
  if (!walked_) {
    WritePlain(out, value_);
    return;
  }
  PlainWalk walk(out);
  if (!walk.Value(value_) || walk.position() != size_) {
    PyErr_Clear();
    throw InvalidError("a value changed while it was being sent: do not change it in another thread meanwhile");
  }
}

void Encoded::WritePickle(std::byte* out) {
  PickleHead head;
  head.count = static_cast<std::uint32_t>(buffers_.size());
  head.length = static_cast<std::uint64_t>(PyBytes_GET_SIZE(pickle_.get()));
  std::memcpy(out, &head, sizeof head);
  std::size_t at = sizeof head + sizeof(Part) * buffers_.size();
  std::memcpy(out + at, PyBytes_AS_STRING(pickle_.get()), head.length);
  at += head.length;
  const auto copy = [&] {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const std::size_t from = Aligned(at);
      std::memset(out + at, 0, from - at);
      const Part part{from, static_cast<std::uint64_t>(buffers_[i].len)};
      std::memcpy(out + sizeof head + i * sizeof part, &part, sizeof part);
      if (part.length >= internal::kCopyLargeFrom) {
        internal::CopyLarge(out + from, static_cast<const std::byte*>(buffers_[i].buf), part.length);
      } else if (part.length != 0) {
        std::memcpy(out + from, buffers_[i].buf, part.length);
      }
      at = from + part.length;
    }
  };
  if (size_ < kNoGilFrom) {
    copy();
  } else {
    const NoGil free;
    copy();
  }
}

PyObject* DecodeValue(internal::View view, const KeepAlive& keep) {
  if (view.size == 0) return Py_NewRef(Py_None);  // a C++ function that returns nothing
  const auto tag = static_cast<internal::PlainTag>(*view.data);
  if (tag == internal::PlainTag::kPickle) return Unpickle(view, keep);
  if (tag == internal::PlainTag::kArrow) return ImportArrow(view, keep);
  PyObject* value = PlainRead(view, keep).Value();
  return value != nullptr || PyErr_Occurred() != nullptr ? value : Malformed();
}

bool AddValueTypes(PyObject* module) {
  look_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&look_spec));
  return look_type != nullptr && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace manta::python
