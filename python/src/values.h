// How Python values travel. The first byte tells: None, booleans, integers of 64 bits, floats, text, bytes and small
// tuples of these are written as they are; everything else is a pickle (protocol 5) whose large buffers lie beside it,
// each at a multiple of 64 bytes, so that an array is read in place.
#pragma once

#include <cstddef>
#include <vector>

#include "py.h"

namespace manta::python {

// A value on its way into bytes: Prepare, then Write into size() bytes. With the GIL.
class Encoded {
 public:
  Encoded() = default;
  ~Encoded();
  Encoded(const Encoded&) = delete;
  Encoded& operator=(const Encoded&) = delete;

  // false: a Python error is set. The value must outlive this object.
  bool Prepare(PyObject* value);
  [[nodiscard]] std::size_t size() const { return size_; }
  void Write(std::byte* out);

 private:
  bool Pickle();

  PyObject* value_ = nullptr;
  std::size_t size_ = 0;
  Obj pickle_;
  std::vector<Py_buffer> buffers_;
};

// The value, or nullptr with a Python error set. If `keep` holds the bytes, buffers are looked at in place and keep
// them; else everything is copied.
PyObject* DecodeValue(internal::View view, const KeepAlive& keep);

bool AddValueTypes(PyObject* module);

}  // namespace manta::python
