#include "timeline.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

namespace manta::python {
namespace {

constexpr std::uint64_t kSlots = 1U << 16;
constexpr std::uint64_t kClaim = 16;
constexpr std::uint32_t kFailed = 0x80000000U;

struct Slot {
  std::atomic<std::uint64_t> stamp;  // which record this is, counted from 1; 0 while it is written
  std::int64_t begin;                // in ticks
  std::int64_t end;
  std::uint32_t pid;
  std::uint32_t thread;  // and kFailed
  char label[32];        // its last bytes, if it is longer
};
static_assert(sizeof(Slot) == 64);

struct Ring {
  bool counter;             // ticks are the processor's; else microseconds
  std::int64_t made_ticks;  // when this was made, …
  std::int64_t made_us;     // … by the clock
  alignas(64) std::atomic<std::uint64_t> claimed;
  alignas(64) Slot slots[kSlots];
};
Ring* ring = nullptr;

std::int64_t ClockUs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000LL + now.tv_nsec / 1000;
}

// The processor's counter where the kernel makes its own clock of it, that is, where it is the same on all cores. It
// takes 10 ns, the clock 24: with two looks for a call of a microsecond that is the difference between 5 % and 2 %.
bool CounterIsAClock() {
#ifdef __x86_64__
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return file >> name && name == "tsc";
#else
  return false;
#endif
}

std::int64_t Ticks() {
#ifdef __x86_64__
  if (ring->counter) return static_cast<std::int64_t>(__builtin_ia32_rdtsc());
#endif
  return ClockUs();
}

}  // namespace

void MakeTimeline() {
  void* memory = mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  ring = static_cast<Ring*>(memory);  // zeros
  ring->counter = CounterIsAClock();
  ring->made_ticks = Ticks();
  ring->made_us = ClockUs();
}

std::int64_t TimelineNow() { return ring == nullptr ? 0 : Ticks(); }

void Record(const internal::Invocation& call, std::int64_t begin, bool failed) {
  if (ring == nullptr) return;
  thread_local std::uint64_t next = 0;
  thread_local std::uint64_t end = 0;
  if (next == end) {
    next = ring->claimed.fetch_add(kClaim, std::memory_order_relaxed);
    end = next + kClaim;
  }
  const std::uint64_t number = next++;
  static const auto pid = static_cast<std::uint32_t>(getpid());
  thread_local const auto thread = static_cast<std::uint32_t>(gettid());
  Slot& slot = ring->slots[number % kSlots];
  slot.stamp.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  slot.begin = begin;
  slot.end = TimelineNow();
  slot.pid = pid;
  slot.thread = thread | (failed ? kFailed : 0);
  const std::string& label = internal::LabelOf(call);
  const std::size_t length = std::min(label.size(), sizeof slot.label);
  std::memcpy(slot.label, label.data() + label.size() - length, length);
  if (length < sizeof slot.label) slot.label[length] = '\0';
  slot.stamp.store(number + 1, std::memory_order_release);
}

namespace {

// timeline() -> [(label, pid, thread, begin, end, failed)], in no order
PyObject* Timeline(PyObject*, PyObject*) {
  Obj out(PyList_New(0));
  double us_per_tick = 1;
  if (ring != nullptr && ring->counter) {
    us_per_tick = static_cast<double>(ClockUs() - ring->made_us) /
                  static_cast<double>(std::max<std::int64_t>(Ticks() - ring->made_ticks, 1));
  }
  const auto micros = [&](std::int64_t ticks) {
    return ring->made_us + static_cast<long long>(static_cast<double>(ticks - ring->made_ticks) * us_per_tick);
  };
  for (std::uint64_t i = 0; ring != nullptr && out && i < kSlots; ++i) {
    Slot& slot = ring->slots[i];
    const std::uint64_t stamp = slot.stamp.load(std::memory_order_acquire);
    if (stamp == 0) continue;
    const std::int64_t begin = slot.begin;
    const std::int64_t end = slot.end;
    const std::uint32_t pid = slot.pid;
    const std::uint32_t thread = slot.thread;
    char label[sizeof slot.label];
    std::memcpy(label, slot.label, sizeof label);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.stamp.load(std::memory_order_relaxed) != stamp) continue;
    const Obj text(PyUnicode_DecodeUTF8(label, static_cast<Py_ssize_t>(strnlen(label, sizeof label)), "replace"));
    const Obj row(text ? Py_BuildValue("OIILLO", text.get(), pid, thread & ~kFailed, micros(begin), micros(end),
                                       (thread & kFailed) != 0 ? Py_True : Py_False)
                       : nullptr);
    if (!row || PyList_Append(out.get(), row.get()) != 0) return nullptr;
  }
  return out.release();
}

PyMethodDef functions[] = {
    {"timeline", Timeline, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool AddTimelineFunctions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace manta::python
