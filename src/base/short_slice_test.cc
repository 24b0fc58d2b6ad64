#include "base/short_slice.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

namespace manta::base {
namespace {

// What the kernel says of this thread, in nanoseconds; 0: nothing.
std::uint64_t Slice() {
  std::ifstream file("/proc/thread-self/sched");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("se.slice")) return std::stoull(line.substr(line.find(':') + 1));
  }
  return 0;
}

bool KnownHere() {
  utsname kernel{};
  int major = 0;
  int minor = 0;
  return uname(&kernel) == 0 && std::sscanf(kernel.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 12)) && Slice() != 0;
}

TEST(ShortSlices, AreTheThreadsUntilTheyEndAndNothingElseChanges) {
  std::thread thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 3), 0);
    const std::uint64_t before = Slice();
    {
      const ShortSlices here;
      if (KnownHere()) {
        EXPECT_LT(Slice(), before);
      }
      EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 3);
    }
    EXPECT_EQ(Slice(), before);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 3);
  });
  thread.join();
}

}  // namespace
}  // namespace manta::base
