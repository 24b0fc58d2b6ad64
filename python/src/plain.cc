#include "plain.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "manta/internal/copy.h"
#include "refs.h"
#include "values.h"

namespace manta::python {
namespace {

using internal::PlainTag;

constexpr int kMostDepth = 500;
constexpr std::size_t kNoGilFrom = std::size_t{1} << 18;

// Of struct's codes, as NumPy gives them. 0: not one that other languages have.
char KindOf(const char* format, Py_ssize_t size) {
  if (format == nullptr) return 'u';
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (*format == 'Z' && (format[1] == 'f' || format[1] == 'd') && format[2] == '\0') return 'c';
  if (format[0] == '\0' || format[1] != '\0') return 0;
  if (*format == '?') return 'b';
  if (std::strchr("bhilq", *format) != nullptr) return 'i';
  if (std::strchr("BHILQ", *format) != nullptr) return 'u';
  if (std::strchr("efd", *format) != nullptr && size <= 8) return 'f';
  return 0;
}

bool IsNumpy(PyObject* value) { return std::strncmp(Py_TYPE(value)->tp_name, "numpy.", 6) == 0; }

}  // namespace

bool OpenArray(PyObject* value, Py_buffer* buffer, char* kind) {
  if (std::strcmp(Py_TYPE(value)->tp_name, "numpy.ndarray") != 0) return false;
  if (PyObject_GetBuffer(value, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // not contiguous, or of something without a format
    return false;
  }
  *kind = KindOf(buffer->format, buffer->itemsize);
  if (*kind != 0 && buffer->ndim <= 255 && buffer->itemsize <= 16) return true;
  PyBuffer_Release(buffer);
  return false;
}

// ---- writing ----

void PlainWalk::Put(const void* from, std::size_t n) {
  if (out_ != nullptr && n != 0) {
    if (n < kNoGilFrom) {
      std::memcpy(out_ + at_, from, n);
    } else {
      const NoGil free;
      internal::CopyLarge(out_ + at_, static_cast<const std::byte*>(from), n);
    }
  }
  at_ += n;
}

void PlainWalk::Count(std::size_t count) {
  const std::uint64_t word = count;
  Put(&word, sizeof word);
}

bool PlainWalk::Number(PyObject* value) {
  const Obj index(PyNumber_Index(value));
  if (!index) return false;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  if (overflow == 0) {
    Tag(PlainTag::kInt);
    Put(&number, sizeof number);
    return !(number == -1 && PyErr_Occurred() != nullptr);
  }
  const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(index.get()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Format(PyExc_OverflowError, "%S does not fit 64 bits, and other languages have no larger integers", value);
    return false;
  }
  Tag(PlainTag::kUInt);
  Put(&large, sizeof large);
  return true;
}

bool PlainWalk::Text(PyObject* value) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text == nullptr) return false;
  Tag(PlainTag::kText);
  Count(static_cast<std::size_t>(size));
  Put(text, static_cast<std::size_t>(size));
  return true;
}

bool PlainWalk::Items(PyObject* iterable, Py_ssize_t count, int depth) {
  Tag(PlainTag::kList);
  Count(static_cast<std::size_t>(count));
  const Obj items(PyObject_GetIter(iterable));
  if (!items) return false;
  for (;;) {
    const Obj item(PyIter_Next(items.get()));
    if (!item) break;
    if (!Value(item.get(), depth + 1)) return false;
  }
  return PyErr_Occurred() == nullptr;
}

bool PlainWalk::Dict(PyObject* dict, int depth) {
  Tag(PlainTag::kDict);
  Count(static_cast<std::size_t>(PyDict_GET_SIZE(dict)));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    if (!Value(key, depth + 1) || !Value(value, depth + 1)) return false;
  }
  return true;
}

bool PlainWalk::Array(const Py_buffer& buffer, char kind) {
  Tag(PlainTag::kArray);
  const char head[] = {kind, static_cast<char>(buffer.itemsize), static_cast<char>(buffer.ndim)};
  Put(head, sizeof head);
  for (int i = 0; i < buffer.ndim; ++i) Count(static_cast<std::size_t>(buffer.shape[i]));
  const std::size_t start = internal::AlignUp(at_);
  if (out_ != nullptr) std::memset(out_ + at_, 0, start - at_);
  at_ = start;
  Put(buffer.buf, static_cast<std::size_t>(buffer.len));
  return true;
}

bool PlainWalk::Object(PyObject* value, int depth) {
  std::byte name[internal::kRefBytes]{};
  if (IsRef(value)) {
    Tag(PlainTag::kRef);
    if (out_ != nullptr) {
      internal::EncodeRef(EntryOf(value), name);  // noted where the bytes are written; see Encoded::Prepare
    }
    Put(name, sizeof name);
    return true;
  }
  if (const Obj actor(PyObject_GetAttrString(value, "_actor")); actor && Py_TYPE(actor.get()) == actor_type) {
    Tag(PlainTag::kActor);
    if (out_ != nullptr) internal::EncodeActor(ActorOf(actor.get()), name);
    Put(name, sizeof name);
    return true;
  }
  PyErr_Clear();
  if (IsNumpy(value) && std::strcmp(Py_TYPE(value)->tp_name, "numpy.ndarray") != 0) {  // a scalar
    const Obj item(PyObject_CallMethod(value, "item", nullptr));
    if (item && Py_TYPE(item.get()) != Py_TYPE(value)) return Value(item.get(), depth + 1);
    PyErr_Clear();
  }
  PyErr_Format(PyExc_TypeError,
               "a value of type %.100s cannot be sent to another language: send None, bool, int, float, str, bytes, "
               "lists, tuples, dicts, arrays of numbers, ObjectRefs or actors",
               Py_TYPE(value)->tp_name);
  return false;
}

bool PlainWalk::Value(PyObject* value, int depth) {
  if (depth > kMostDepth) {
    PyErr_SetString(PyExc_RecursionError, "a value nested this deep (or one that contains itself) cannot be sent");
    return false;
  }
  if (value == Py_None || value == Py_True || value == Py_False) {
    Tag(value == Py_None ? PlainTag::kNone : value == Py_True ? PlainTag::kTrue : PlainTag::kFalse);
    return true;
  }
  if (PyLong_Check(value)) return Number(value);
  if (PyFloat_Check(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    Tag(PlainTag::kFloat);
    Put(&number, sizeof number);
    return true;
  }
  if (PyUnicode_Check(value)) return Text(value);
  if (PyBytes_Check(value) || PyByteArray_Check(value)) {
    const bool fixed = PyBytes_Check(value) != 0;
    const auto size = static_cast<std::size_t>(fixed ? PyBytes_GET_SIZE(value) : PyByteArray_GET_SIZE(value));
    Tag(PlainTag::kBytes);
    Count(size);
    Put(fixed ? PyBytes_AS_STRING(value) : PyByteArray_AS_STRING(value), size);
    return true;
  }
  if (PyTuple_Check(value) && PyTuple_GET_SIZE(value) <= 255) {
    const auto count = static_cast<std::uint8_t>(PyTuple_GET_SIZE(value));
    Tag(PlainTag::kTuple);
    Put(&count, 1);
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!Value(PyTuple_GET_ITEM(value, i), depth + 1)) return false;
    }
    return true;
  }
  if (PyList_Check(value) || PyTuple_Check(value) || PyAnySet_Check(value))
    return Items(value, PyObject_Size(value), depth);
  if (PyDict_Check(value)) return Dict(value, depth);
  Py_buffer buffer;
  char kind = 0;
  if (OpenArray(value, &buffer, &kind)) {
    const bool done = Array(buffer, kind);
    PyBuffer_Release(&buffer);
    return done;
  }
  if (std::strcmp(Py_TYPE(value)->tp_name, "numpy.ndarray") == 0) {
    // In another order, or of another machine's bytes: a copy that is not. What has no such form raises there.
    const Obj numpy(PyImport_ImportModule("numpy"));
    const Obj copy(numpy ? PyObject_CallMethod(numpy.get(), "ascontiguousarray", "O", value) : nullptr);
    if (copy && OpenArray(copy.get(), &buffer, &kind)) {
      const bool done = Array(buffer, kind);
      PyBuffer_Release(&buffer);
      return done;
    }
    PyErr_Clear();
  }
  if (PyIndex_Check(value) != 0) return Number(value);
  return Object(value, depth);
}

// ---- reading ----

bool PlainRead::Word(std::uint64_t* word) {
  if (left() < 8) return false;
  std::memcpy(word, at_, 8);
  at_ += 8;
  return true;
}

PyObject* PlainRead::Items(PlainTag tag, int depth) {
  std::uint64_t count = 0;
  if (tag == PlainTag::kTuple) {
    if (left() < 1) return nullptr;
    count = static_cast<std::uint64_t>(*at_++);
  } else if (!Word(&count)) {
    return nullptr;
  }
  if (count > left()) return nullptr;
  const auto size = static_cast<Py_ssize_t>(count);
  Obj items(tag == PlainTag::kTuple ? PyTuple_New(size) : PyList_New(size));
  Py_ssize_t refs = 0;
  if (items && tag == PlainTag::kList && !Refs(items.get(), size, &refs)) return nullptr;
  for (Py_ssize_t i = refs; items && i < size; ++i) {
    PyObject* item = Value(depth + 1);
    if (item == nullptr) return nullptr;
    if (tag == PlainTag::kTuple) {
      PyTuple_SET_ITEM(items.get(), i, item);
    } else {
      PyList_SET_ITEM(items.get(), i, item);
    }
  }
  return items.release();
}

// The first *count of the list's items, which are Refs: many of them are adopted at once.
bool PlainRead::Refs(PyObject* list, Py_ssize_t size, Py_ssize_t* count) {
  constexpr std::size_t kStride = 1 + internal::kRefBytes;
  constexpr Py_ssize_t kBatch = 256;
  internal::Entry* entries[kBatch];
  while (*count < size) {
    Py_ssize_t some = 0;
    const std::byte* name = at_;
    while (some < std::min(kBatch, size - *count) && static_cast<std::size_t>(end_ - name) >= kStride &&
           static_cast<PlainTag>(*name) == PlainTag::kRef) {
      ++some;
      name += kStride;
    }
    if (some == 0) return true;
    const Obj done(Guard([&] {
      internal::DecodeRefs(at_ + 1, kStride, static_cast<std::size_t>(some), entries);
      return Py_NewRef(Py_None);
    }));
    if (!done) return false;
    at_ = name;
    bool whole = true;
    for (Py_ssize_t i = 0; i < some; ++i) {
      PyObject* ref = entries[i] == nullptr ? Py_NewRef(Py_None) : NewRef(entries[i]);
      whole = whole && ref != nullptr;
      PyList_SET_ITEM(list, *count + i, ref);
    }
    *count += some;
    if (!whole) return false;
  }
  return true;
}

PyObject* PlainRead::Dict(int depth) {
  std::uint64_t count = 0;
  if (!Word(&count) || count > left() / 2) return nullptr;
  Obj dict(PyDict_New());
  for (std::uint64_t i = 0; dict && i < count; ++i) {
    const Obj key(Value(depth + 1));
    const Obj value(key ? Value(depth + 1) : nullptr);
    if (!value || PyDict_SetItem(dict.get(), key.get(), value.get()) != 0) return nullptr;
  }
  return dict.release();
}

PyObject* PlainRead::Array() {
  if (left() < 3) return nullptr;
  const char kind = static_cast<char>(at_[0]);
  const auto item = static_cast<std::uint64_t>(at_[1]);
  const auto dimensions = static_cast<Py_ssize_t>(at_[2]);
  at_ += 3;
  if (item == 0 || std::strchr("biufc", kind) == nullptr || kind == '\0') return nullptr;
  const Obj shape(PyTuple_New(dimensions));
  std::uint64_t count = 1;
  for (Py_ssize_t i = 0; i < dimensions; ++i) {
    std::uint64_t length = 0;
    if (!Word(&length) || (length != 0 && count > std::numeric_limits<std::uint64_t>::max() / length)) return nullptr;
    count *= length;
    PyTuple_SET_ITEM(shape.get(), i, PyLong_FromUnsignedLongLong(length));
  }
  const std::size_t start = internal::AlignUp(static_cast<std::size_t>(at_ - begin_));
  if (start > static_cast<std::size_t>(end_ - begin_)) return nullptr;
  at_ = begin_ + start;
  if (count > left() / item) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count * item);
  const Obj look(NewLook(at_, bytes, keep_));
  at_ += bytes;
  if (!look) return nullptr;
  const std::string type = std::string(1, kind) + std::to_string(item);
  return PyObject_CallFunction(hooks.make_array, "OsO", look.get(), type.c_str(), shape.get());
}

PyObject* PlainRead::Name(PlainTag tag) {
  if (left() < internal::kRefBytes) return nullptr;
  const std::byte* name = at_;
  at_ += internal::kRefBytes;
  return Guard([&]() -> PyObject* {
    if (tag == PlainTag::kRef) {
      internal::Entry* entry = internal::DecodeRef(name);
      return entry == nullptr ? Py_NewRef(Py_None) : NewRef(entry);
    }
    internal::ActorEntry* entry = internal::DecodeActor(name);
    if (entry == nullptr) return Py_NewRef(Py_None);
    const Obj actor(NewActor(entry));
    return actor ? PyObject_CallOneArg(hooks.make_actor, actor.get()) : nullptr;
  });
}

PyObject* PlainRead::Value(int depth) {
  if (at_ >= end_ || depth > kMostDepth) return nullptr;
  const auto tag = static_cast<PlainTag>(*at_++);
  std::uint64_t word = 0;
  switch (tag) {
    case PlainTag::kNone:
      return Py_NewRef(Py_None);
    case PlainTag::kFalse:
      return Py_NewRef(Py_False);
    case PlainTag::kTrue:
      return Py_NewRef(Py_True);
    case PlainTag::kInt:
      return Word(&word) ? PyLong_FromLongLong(static_cast<long long>(word)) : nullptr;
    case PlainTag::kUInt:
      return Word(&word) ? PyLong_FromUnsignedLongLong(word) : nullptr;
    case PlainTag::kFloat: {
      double number = 0;
      if (!Word(&word)) return nullptr;
      std::memcpy(&number, &word, sizeof number);
      return PyFloat_FromDouble(number);
    }
    case PlainTag::kText:
    case PlainTag::kBytes: {
      if (!Word(&word) || word > left()) return nullptr;
      const char* run = reinterpret_cast<const char*>(at_);
      at_ += word;
      return tag == PlainTag::kText ? PyUnicode_DecodeUTF8(run, static_cast<Py_ssize_t>(word), nullptr)
                                    : PyBytes_FromStringAndSize(run, static_cast<Py_ssize_t>(word));
    }
    case PlainTag::kTuple:
    case PlainTag::kList:
      return Items(tag, depth);
    case PlainTag::kDict:
      return Dict(depth);
    case PlainTag::kArray:
      return Array();
    case PlainTag::kRef:
    case PlainTag::kActor:
      return Name(tag);
    default:
      return nullptr;
  }
}

// ---- for C++ code in this process ----

internal::View PlainOfPickle(internal::View pickle, KeepAlive* keep) {
  const PyGILState_STATE state = PyGILState_Ensure();
  std::string problem;
  internal::View out;
  {
    const KeepAlive stays(pickle.data, [](const void*) {});  // as long as we look at it
    const Obj value(DecodeValue(pickle, stays));
    Encoded encoded;
    if (value && encoded.Prepare(value.get(), Form::kPlain)) {
      auto bytes = std::make_shared<manta::Array<std::byte>>(encoded.size(), std::byte{0});
      encoded.Write(const_cast<std::byte*>(bytes->data()));
      out = {bytes->data(), bytes->size()};
      *keep = std::move(bytes);
    } else {
      PyObject* type = nullptr;
      PyObject* error = nullptr;
      PyObject* trace = nullptr;
      PyErr_Fetch(&type, &error, &trace);
      const Obj text(error == nullptr ? nullptr : PyObject_Str(error));
      const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
      problem = words == nullptr ? "an argument cannot be read" : words;
      Py_XDECREF(type);
      Py_XDECREF(error);
      Py_XDECREF(trace);
      PyErr_Clear();
    }
  }
  PyGILState_Release(state);
  if (!problem.empty()) throw InvalidError(problem);
  return out;
}

}  // namespace manta::python
