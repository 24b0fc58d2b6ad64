#include "base/short_slice.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace manta::base {
namespace {

constexpr std::uint64_t kShortestNs = 100'000;  // that there is

struct Attributes {  // sched_attr, which the C library does not know
  std::uint32_t size = 0;
  std::uint32_t policy = 0;  // 0: the normal one
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(Attributes) == 48);

bool Read(Attributes* attributes) { return syscall(SYS_sched_getattr, 0, attributes, sizeof *attributes, 0) == 0; }

bool Write(Attributes* attributes, std::uint64_t slice_ns) {
  attributes->size = sizeof *attributes;
  attributes->slice_ns = slice_ns;
  return syscall(SYS_sched_setattr, 0, attributes, 0) == 0;
}

}  // namespace

// Niceness and the like stay as they are.
ShortSlices::ShortSlices() {
  Attributes attributes;
  if (!Read(&attributes) || attributes.policy != 0) return;
  before_ns_ = attributes.slice_ns;
  changed_ = Write(&attributes, kShortestNs);
}

ShortSlices::~ShortSlices() {
  Attributes attributes;
  if (changed_ && Read(&attributes) && attributes.policy == 0) Write(&attributes, before_ns_);
}

}  // namespace manta::base
