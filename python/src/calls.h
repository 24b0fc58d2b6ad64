// Submitting: from `f.remote(1, x=2)` to a call of the engine. Every call of a Python function or actor has the same
// trampoline; its first argument is a CallHead that says what to run, the others are the call's own, one by one.
#pragma once

#include <cstdint>

#include "py.h"

namespace manta::python {

enum class CallKind : std::uint8_t { kFunction = 0, kCreate = 1, kMethod = 2 };

// Then `name` bytes (a method's), then for each keyword a std::uint16_t and so many bytes.
struct CallHead {
  static constexpr std::uint8_t kRetryAll = 1;  // any exception is worth another try
  CallKind kind = CallKind::kFunction;
  std::uint8_t flags = 0;
  std::uint16_t name = 0;
  std::uint32_t keywords = 0;
  std::uint32_t values = 0;  // keywords included
  std::uint32_t unused = 0;
  std::byte function[internal::kRefBytes] = {};  // of the pickled function or class; not counted by the call:
                                                 // whoever published it keeps it
};

void RunPython(internal::Invocation& call);  // run.cc

bool AddCallTypes(PyObject* module);

}  // namespace manta::python
