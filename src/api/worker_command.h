// The words that SetWorkerCommand was given, for Init; empty: none. Guarded by nothing: a front end sets them before.
#pragma once

#include <string>
#include <vector>

namespace manta::internal {

std::vector<std::string>& WorkerCommand();

}  // namespace manta::internal
