#include "echo.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "harness.h"

namespace bench {
namespace {

constexpr std::uint64_t kSlots = 2048;  // more than the window: a slot is free when its turn comes
constexpr std::uint64_t kWindow = Echo::kWindow;
constexpr std::uint64_t kStop = ~std::uint64_t{0};

enum Commands : std::uint32_t { kIdle, kRing, kPing, kForks };

// One line of cache: the number says which message it holds.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> sequence{0};
  std::uint64_t payload[7] = {};
};
static_assert(sizeof(Slot) == Echo::kSlotBytes);

void Pause() {
#ifdef __SSE2__
  _mm_pause();
#endif
}

// Spins, but lets the other side run where the two have to share a core: the ring's limit, not the scheduler's.
class Spinner {
 public:
  void Wait() {
    if (++empty_ % 256 == 0)
      ::sched_yield();
    else
      Pause();
  }

 private:
  std::uint32_t empty_ = 0;
};

long Futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<std::uint32_t>* word) { Futex(word, FUTEX_WAKE, INT_MAX); }
void FutexWaitWhile(std::atomic<std::uint32_t>* word, std::uint32_t value) {
  while (word->load(std::memory_order_acquire) == value) Futex(word, FUTEX_WAIT, value);
}

void StayOn(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

// While one lives, this thread stays on one core and the other process may take another: two spinners that
// the scheduler puts on one core would be no limit to compare with, and neither would a futex wake within one
// core (7 µs instead of 42), since a caller that spins keeps its own core busy.
class TwoCores {
 public:
  explicit TwoCores(std::atomic<int>* other) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    const int mine = ::sched_getcpu();
    int theirs = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && theirs < 0; ++cpu) {
      if (cpu != mine && CPU_ISSET(static_cast<std::size_t>(cpu), &before_)) theirs = cpu;
    }
    other->store(theirs);
    if (theirs >= 0) StayOn(mine);
  }
  ~TwoCores() { ::sched_setaffinity(0, sizeof before_, &before_); }
  TwoCores(const TwoCores&) = delete;
  TwoCores& operator=(const TwoCores&) = delete;

 private:
  cpu_set_t before_;
};

void Send(Slot* ring, std::uint64_t at, std::uint64_t value) {
  Slot& slot = ring[at % kSlots];
  for (std::uint64_t& word : slot.payload) word = value;
  slot.sequence.store(at + 1, std::memory_order_release);
}
bool TryReceive(Slot* ring, std::uint64_t at, std::uint64_t* value) {
  Slot& slot = ring[at % kSlots];
  if (slot.sequence.load(std::memory_order_acquire) != at + 1) return false;
  *value = slot.payload[0];
  if (slot.payload[6] != *value) Fail("the raw ring lost a message");
  return true;
}

}  // namespace

struct EchoArea {
  alignas(64) std::atomic<std::uint32_t> command{kIdle};
  alignas(64) std::atomic<std::uint32_t> ping{0};
  alignas(64) std::atomic<std::uint32_t> pong{0};
  std::atomic<int> ring_cpu{-1};           // where the other process shall spin; -1: anywhere
  std::atomic<int> pauses{0};              // of the other process before it looks again
  alignas(64) std::uint64_t position = 0;  // next message of both rings, when idle
  double seconds = 0;                      // in: how long; out: of one operation
  Slot requests[kSlots];
  Slot replies[kSlots];
};

namespace {

void ServeRing(EchoArea* area) {
  if (const int cpu = area->ring_cpu.load(); cpu >= 0) StayOn(cpu);
  for (std::uint64_t at = area->position;; ++at) {
    std::uint64_t value = 0;
    for (Spinner spinner; !TryReceive(area->requests, at, &value);) {
      for (int i = 0; i < area->pauses; ++i) Pause();
      spinner.Wait();
    }
    Send(area->replies, at, value);
    if (value == kStop) return;
  }
}

void ServePing(EchoArea* area) {
  if (const int cpu = area->ring_cpu.load(); cpu >= 0) StayOn(cpu);
  for (std::uint32_t seen = area->pong.load();;) {
    FutexWaitWhile(&area->ping, seen);
    seen = area->ping.load();
    if (seen == 0) return;
    area->pong.store(seen, std::memory_order_release);
    FutexWake(&area->pong);
  }
}

void ServeForks(EchoArea* area) {
  const double begin = Now();
  int count = 0;
  for (; Now() - begin < area->seconds || count == 0; ++count) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
  }
  area->seconds = (Now() - begin) / count;
}

[[noreturn]] void Serve(EchoArea* area, pid_t parent) {
  cpu_set_t everywhere;
  ::sched_getaffinity(0, sizeof everywhere, &everywhere);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  for (;;) {
    FutexWaitWhile(&area->command, kIdle);
    switch (area->command.load()) {
      case kRing:
        ServeRing(area);
        break;
      case kPing:
        ServePing(area);
        break;
      default:
        ServeForks(area);
        break;
    }
    ::sched_setaffinity(0, sizeof everywhere, &everywhere);
    area->command.store(kIdle, std::memory_order_release);
    FutexWake(&area->command);
  }
}

}  // namespace

Echo::Echo() {
  void* memory =
      ::mmap(nullptr, sizeof(EchoArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Fail(std::string("cannot map the ring: ") + std::strerror(errno));
  area_ = new (memory) EchoArea;
  const pid_t parent = ::getpid();
  helper_ = ::fork();
  if (helper_ < 0) Fail(std::string("cannot fork: ") + std::strerror(errno));
  if (helper_ == 0) Serve(area_, parent);
}

Echo::~Echo() {
  ::kill(helper_, SIGKILL);
  ::waitpid(helper_, nullptr, 0);
  ::munmap(area_, sizeof(EchoArea));
}

void Echo::Command(std::uint32_t command) {
  area_->command.store(command, std::memory_order_release);
  FutexWake(&area_->command);
}
void Echo::AwaitIdle() {
  for (std::uint32_t command; (command = area_->command.load(std::memory_order_acquire)) != kIdle;) {
    FutexWaitWhile(&area_->command, command);
  }
}

double Echo::RingRate(double seconds) {
  const TwoCores cores(&area_->ring_cpu);
  area_->pauses = 16;
  Command(kRing);
  std::uint64_t sent = area_->position, received = sent;
  const std::uint64_t first = sent;
  std::uint64_t value = 0;
  // Sends and receives up to `goal`, half a window at a time: a receiver that takes each line of cache the
  // moment it is written runs in lock step with the sender, at the rate of single round trips.
  const auto until = [&](std::uint64_t goal) {
    while (received < goal) {
      while (sent < goal && sent - received < kWindow) Send(area_->requests, sent, sent), ++sent;
      const std::uint64_t half = std::min(sent, received + kWindow / 2);
      for (Spinner spinner; !TryReceive(area_->replies, half - 1, &value);) spinner.Wait();
      for (; received < half; ++received) {
        if (!TryReceive(area_->replies, received, &value) || value != received) Fail("the raw ring mixed up messages");
      }
    }
  };
  until(first + kWindow);  // the other side is awake now
  const double begin = Now();
  double end = begin;
  const std::uint64_t counted = received;
  while ((end = Now()) - begin < seconds) until(received + 16 * kWindow);
  const double rate = static_cast<double>(received - counted) / (end - begin);
  Send(area_->requests, sent, kStop);
  for (Spinner spinner; !TryReceive(area_->replies, sent, &value);) spinner.Wait();
  AwaitIdle();
  area_->position = sent + 1;
  return rate;
}

double Echo::RingTrip(double seconds) {
  const TwoCores cores(&area_->ring_cpu);
  area_->pauses = 0;
  Command(kRing);
  std::uint64_t at = area_->position, value = 0;
  const auto trip = [&](std::uint64_t message) {
    Send(area_->requests, at, message);
    for (Spinner spinner; !TryReceive(area_->replies, at, &value);) spinner.Wait();
    ++at;
  };
  for (int i = 0; i < 1000; ++i) trip(at);
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.empty() || Now() < end;) {
    for (int i = 0; i < 100; ++i) {
      const double begin = Now();
      trip(at);
      samples.push_back(Now() - begin);
    }
  }
  trip(kStop);
  AwaitIdle();
  area_->position = at;
  return Percentile(samples, 0.5);
}

double Echo::FutexTrip(double seconds) {
  const TwoCores cores(&area_->ring_cpu);
  area_->ping.store(1);
  area_->pong.store(1);
  Command(kPing);
  SleepMs(2);
  std::vector<double> samples;
  std::uint32_t turn = 1;
  for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
    SleepMs(1);
    const double begin = Now();
    ++turn;
    area_->ping.store(turn, std::memory_order_release);
    FutexWake(&area_->ping);
    FutexWaitWhile(&area_->pong, turn - 1);
    samples.push_back(Now() - begin);
  }
  area_->ping.store(0, std::memory_order_release);
  FutexWake(&area_->ping);
  AwaitIdle();
  return Percentile(samples, 0.5);
}

double Echo::Fork(double seconds) {
  area_->seconds = seconds;
  Command(kForks);
  AwaitIdle();
  return area_->seconds;
}

}  // namespace bench
