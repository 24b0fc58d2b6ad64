// How a call of a Python function or actor, or of C++ code by name out of Python, says what to run: its first argument
// is a ForeignHead and some text, the others are the call's own, one by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manta/internal/core.h"
#include "manta/internal/export.h"

namespace manta::internal {

enum class ForeignKind : std::uint8_t {
  kFunction = 0,     // a pickled Python function
  kCreate = 1,       // a pickled Python class
  kMethod = 2,       // of a Python actor; the text is its name
  kNamed = 3,        // a Python function by name: "module\nfunction"
  kNamedCreate = 4,  // a Python class by name
  kNative = 5,       // C++ by name: "library\nfunction"
  kNativeCreate = 6,
  kNativeMethod = 7,  // of an actor made so: "library\nClass.method"
};

// Then `name` bytes, then for each keyword a std::uint16_t and so many bytes.
struct ForeignHead {
  static constexpr std::uint8_t kRetryAll = 1;   // any exception is worth another try
  static constexpr std::uint8_t kPlain = 2;      // the caller is not Python: the result must be plain (manta/plain.h)
  static constexpr std::uint8_t kRetrySome = 4;  // a method: `function` names exceptions that are worth another try
  ForeignKind kind = ForeignKind::kFunction;
  std::uint8_t flags = 0;
  std::uint16_t name = 0;
  std::uint32_t keywords = 0;
  std::uint32_t values = 0;            // keywords included
  std::uint32_t awaited = 0;           // kCreate: bit i, value i is a Ref that was not ready when the call was made
  std::byte function[kRefBytes] = {};  // of the pickled function or class; not counted by the call: whoever published
                                       // it keeps it
};

// Runs such a call; starts Python in this process if it is not there yet (see src/api/python.cc).
MANTA_EXPORT void RunForeign(Invocation& call);
// By the Python front end, when it is loaded.
MANTA_EXPORT void SetForeignRunner(Trampoline runner);

}  // namespace manta::internal
