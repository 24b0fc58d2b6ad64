// Named places at which a test kills the driver: MANTA_TUNE_FAILPOINT="result.recorded@3" ends the process with SIGKILL
// when it passes the place for the third time.
#pragma once

namespace manta::tune::runtime {
void Failpoint(const char* name);
}  // namespace manta::tune::runtime
