// Values written as they are, by the format of manta/internal/plain_codec.h. With the GIL.
#pragma once

#include <cstddef>

#include "manta/internal/plain_codec.h"
#include "py.h"

namespace manta::python {

// Is it an array of NumPy, of numbers, in C order? Then *buffer looks at it and *kind is the kind of its elements.
bool OpenArray(PyObject* value, Py_buffer* buffer, char* kind);

// Counts with out == nullptr, else writes: the same walk twice.
class PlainWalk {
 public:
  explicit PlainWalk(std::byte* out) : out_(out) {}
  // false: a Python error is set that names the type which cannot be written so.
  bool Value(PyObject* value, int depth = 0);
  [[nodiscard]] std::size_t position() const { return at_; }

 private:
  void Put(const void* from, std::size_t n);
  void Tag(internal::PlainTag tag) { Put(&tag, 1); }
  void Count(std::size_t count);
  bool Number(PyObject* value);
  bool Text(PyObject* value);
  bool Items(PyObject* iterable, Py_ssize_t count, int depth);
  bool Dict(PyObject* dict, int depth);
  bool Array(const Py_buffer& buffer, char kind);
  bool Object(PyObject* value, int depth);

  std::byte* out_;
  std::size_t at_ = 0;
};

// Reads one value of a blob.
class PlainRead {
 public:
  PlainRead(internal::View view, const KeepAlive& keep)
      : begin_(view.data), at_(view.data), end_(view.data + view.size), keep_(keep) {}
  // nullptr without a Python error: the bytes make no sense.
  PyObject* Value(int depth = 0);

 private:
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  bool Word(std::uint64_t* word);
  PyObject* Items(internal::PlainTag tag, int depth);
  bool Refs(PyObject* list, Py_ssize_t size, Py_ssize_t* count);
  PyObject* Dict(int depth);
  PyObject* Array();
  PyObject* Name(internal::PlainTag tag);

  const std::byte* begin_;
  const std::byte* at_;
  const std::byte* end_;
  const KeepAlive& keep_;
};

// A pickle as a plain value, for C++ code in a process that has Python.
internal::View PlainOfPickle(internal::View pickle, KeepAlive* keep);

}  // namespace manta::python
