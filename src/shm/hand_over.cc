#include "shm/hand_over.h"

#include <sched.h>

#include "base/clock.h"

namespace manta::shm {

bool HandOver::Yield() {
  const std::int64_t begin = base::NowMicros();
  sched_yield();
  return Yielded(base::NowMicros() - begin);
}

}  // namespace manta::shm
