// Time in short slices, for threads that work for microseconds at a time and for whose work somebody waits: while this
// lives, the thread that made it runs soon after it wakes, also beside others that compute all the time, which get as
// much time as before. Needs no privilege. Kernels before 6.12 do not know it: then nothing changes.
//
// Made and destroyed by the same thread.
#pragma once

#include <cstdint>

namespace manta::base {

class ShortSlices {
 public:
  ShortSlices();
  ~ShortSlices();
  ShortSlices(const ShortSlices&) = delete;
  ShortSlices& operator=(const ShortSlices&) = delete;

 private:
  std::uint64_t before_ns_ = 0;
  bool changed_ = false;
};

}  // namespace manta::base
