// When calls ran, for manta.timeline(): a ring in memory that all workers of one fork server share, made before the
// first fork. It holds the last 65,536 calls, also those of workers that are gone; any worker can read it. Writing one
// takes two looks at the processor's counter (or the clock) and a cache line of the writer's own: each thread claims
// slots sixteen at a time.
//
// Any thread may record. Readers may see a slot while it is written: its stamp tells.
#pragma once

#include <cstdint>

#include "py.h"

namespace manta::python {

void MakeTimeline();  // by a fork server; without it nothing is recorded
// In ticks, for Record; 0 if nothing is recorded.
std::int64_t TimelineNow();
void Record(const internal::Invocation& call, std::int64_t begin, bool failed);

bool AddTimelineFunctions(PyObject* module);

}  // namespace manta::python
