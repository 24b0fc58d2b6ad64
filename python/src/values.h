// How Python values travel. The first byte tells (manta/internal/plain_codec.h): None, booleans, integers of 64 bits,
// floats, text, bytes, small tuples of these, lists of ObjectRefs, arrays of NumPy and tables of Arrow are written as
// they are; everything else is a pickle (protocol 5) whose large buffers lie beside it, each at a multiple of 64 bytes,
// so that an array is read in place. For another language (Form::kPlain) lists and dictionaries, too, are written as
// they are, and what cannot be raises.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "manta/arrow.h"
#include "py.h"

namespace manta::python {

enum class Form { kPython, kPlain };

// A value on its way into bytes: Prepare, then Write into size() bytes. With the GIL.
class Encoded {
 public:
  Encoded() = default;
  ~Encoded();
  Encoded(const Encoded&) = delete;
  Encoded& operator=(const Encoded&) = delete;

  // false: a Python error is set. The value must outlive this object.
  bool Prepare(PyObject* value, Form form = Form::kPython);
  [[nodiscard]] std::size_t size() const { return size_; }
  // Then equal values may have other bytes: a pickle knows which objects are the same, and in which order a set is.
  [[nodiscard]] bool pickled() const { return static_cast<bool>(pickle_); }
  void Write(std::byte* out);

 private:
  bool Other(Form form);
  bool Pickle();
  void WritePickle(std::byte* out);

  PyObject* value_ = nullptr;
  std::size_t size_ = 0;
  bool walked_ = false;  // by plain.h
  Obj pickle_;
  std::vector<Py_buffer> buffers_;
  std::unique_ptr<internal::ArrowData> arrow_;
};

// The value, or nullptr with a Python error set. If `keep` holds the bytes, buffers are looked at in place and keep
// them; else everything is copied.
PyObject* DecodeValue(internal::View view, const KeepAlive& keep);

// `size` bytes as an object with a read-only buffer: in place if `keep` holds them, else a copy.
PyObject* NewLook(const std::byte* data, std::size_t size, const KeepAlive& keep);

bool AddValueTypes(PyObject* module);

}  // namespace manta::python
