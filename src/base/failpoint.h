// Failpoints are named places where a test has this process die or stop: between two steps that must not be torn apart
// for whoever looks from outside. They are in every build; when none is set, each costs a look at a flag.
//
//   MANTA_FAILPOINTS="actor.recorded=kill@3,node.lease=stop@1" MANTA_FAILPOINTS_ONCE=/a/folder …
//
// The third time that a process comes to "actor.recorded" it is killed. With the folder, each happens once in all
// processes that have this environment, and leaves a file with its name there, so that a test can see that it was hit;
// without it, in every process that comes so far. Names stand in doc/failures.md. Any thread.
#pragma once

#include <atomic>

namespace manta::base {

namespace internal {
extern std::atomic<bool> failpoints_set;
void HitFailpoint(const char* name);
}  // namespace internal

inline void Failpoint(const char* name) {
  if (internal::failpoints_set.load(std::memory_order_relaxed)) [[unlikely]]
    internal::HitFailpoint(name);
}

// Every process begins with what its environment says; tests of this very thing give their own text. Entries that make
// no sense are left out.
void SetFailpoints(const char* text, const char* once_folder);

}  // namespace manta::base
