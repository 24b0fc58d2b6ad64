// Preloaded into the processes of a cluster: a wall clock that jumps. By how much, in seconds, stands in the file that
// MANTA_TEST_CLOCK names, which is mapped, so that a change is a jump of all of them at once. Other clocks are the
// kernel's, and so is what the kernel itself waits for.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

const std::atomic<std::int64_t>* Offset() {
  static const std::atomic<std::int64_t>* const offset = [] {
    const char* path = std::getenv("MANTA_TEST_CLOCK");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return static_cast<const std::atomic<std::int64_t>*>(nullptr);
    void* memory = mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<const std::atomic<std::int64_t>*>(memory);
  }();
  return offset;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  const bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
  if (result == 0 && wall && Offset() != nullptr) out->tv_sec += Offset()->load();
  return result;
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
