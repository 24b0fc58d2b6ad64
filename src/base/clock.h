// Monotonic time: the only clock that decides anything.
#pragma once

#include <cstdint>

namespace manta::base {

[[nodiscard]] std::int64_t NowMicros();
std::int64_t NowNanos();

}  // namespace manta::base
