// How a task is cancelled by a process that does not own its result.
#pragma once

#include <cstdint>

#include "wire/messages.h"

namespace manta::wire {

enum class CancelKind : std::uint16_t {
  kCancelObject = 495,
  kFarCancelObject,
};

// P -> N, and N -> P, to its owner: cancel the task that makes this object. Nothing happens if that is over.
struct CancelObject {
  static constexpr Kind kKind = static_cast<Kind>(CancelKind::kCancelObject);
  Id object;
  ProcessId owner = kNoProcess;
  bool force = false;
  bool tree = false;  // with all calls that it has made
};
// N -> home: CancelObject, of a process here.
struct FarCancelObject {
  static constexpr Kind kKind = static_cast<Kind>(CancelKind::kFarCancelObject);
  CancelObject order;
};

}  // namespace manta::wire
