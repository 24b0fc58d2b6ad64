// Failure is a failed outcome that crosses processes: what Get() will throw in the end.
#pragma once

#include <string>

#include "manta/errors.h"
#include "types/status.h"

namespace manta {

struct Failure {
  Code code = Code::kOk;
  std::string message;
  std::string type;   // of the user's exception, if it was one
  std::string cause;  // its what()

  [[nodiscard]] bool ok() const { return code == Code::kOk; }
};

// Failure::type of what is lost because a task that ran again did something else than before.
inline constexpr char kNondeterminism[] = "manta::NondeterminismError";

[[nodiscard]] inline Failure ToFailure(const Status& status) {
  return Failure{status.code(), status.message(), {}, {}};
}

}  // namespace manta
