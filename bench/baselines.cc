#include "baselines.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr std::uint64_t kSlots = 2048;  // more than the window: a slot is free when its turn comes
constexpr std::uint64_t kWindow = 1000;
constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr double kSeconds = 0.1;  // of one measurement

enum Commands : std::uint32_t { kIdle, kRing, kPing, kForks };

// One line of cache: the number says which message it holds.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> sequence{0};
  std::uint64_t payload[7] = {};
};
static_assert(sizeof(Slot) == 64);

void Pause() {
#ifdef __SSE2__
  _mm_pause();
#endif
}

long Futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<std::uint32_t>* word) { Futex(word, FUTEX_WAKE, INT_MAX); }
void FutexWaitWhile(std::atomic<std::uint32_t>* word, std::uint32_t value) {
  while (word->load(std::memory_order_acquire) == value) Futex(word, FUTEX_WAIT, value);
}

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

std::span<std::uint64_t> MapWords(std::size_t bytes, int sharing) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Fail("cannot map " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // where the system allows it
  const std::span words(static_cast<std::uint64_t*>(memory), bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15ULL;
  return words;
}

void StreamCopy(std::uint64_t* to, const std::uint64_t* from, std::size_t words) {
#ifdef __SSE2__
  auto* out = reinterpret_cast<__m128i*>(to);
  const auto* in = reinterpret_cast<const __m128i*>(from);
  for (std::size_t i = 0; i < words / 2; i += 4) {  // a line at a time
    const __m128i a = _mm_load_si128(in + i), b = _mm_load_si128(in + i + 1);
    const __m128i c = _mm_load_si128(in + i + 2), d = _mm_load_si128(in + i + 3);
    _mm_stream_si128(out + i, a);
    _mm_stream_si128(out + i + 1, b);
    _mm_stream_si128(out + i + 2, c);
    _mm_stream_si128(out + i + 3, d);
  }
  _mm_sfence();
#else
  std::memcpy(to, from, words * sizeof *to);
#endif
}

}  // namespace

struct EchoArea {
  alignas(64) std::atomic<std::uint32_t> command{kIdle};
  alignas(64) std::atomic<std::uint32_t> ping{0};
  alignas(64) std::atomic<std::uint32_t> pong{0};
  alignas(64) std::uint64_t position = 0;  // next message of both rings, when idle
  double seconds = 0;                      // in: how long; out: of one operation
  Slot requests[kSlots];
  Slot replies[kSlots];
};

namespace {

void ServeRing(EchoArea* area) {
  for (std::uint64_t at = area->position;; ++at) {
    std::uint64_t value = 0;
    while (!TryReceive(area->requests, at, &value)) Pause();
    Send(area->replies, at, value);
    if (value == kStop) return;
  }
}

void ServePing(EchoArea* area) {
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
    area->command.store(kIdle, std::memory_order_release);
    FutexWake(&area->command);
  }
}

}  // namespace

Baselines::Baselines() {
  void* memory =
      ::mmap(nullptr, sizeof(EchoArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Fail(std::string("cannot map the ring: ") + std::strerror(errno));
  area_ = new (memory) EchoArea;
  const pid_t parent = ::getpid();
  helper_ = ::fork();
  if (helper_ < 0) Fail(std::string("cannot fork: ") + std::strerror(errno));
  if (helper_ == 0) Serve(area_, parent);
}

Baselines::~Baselines() {
  ::kill(helper_, SIGKILL);
  ::waitpid(helper_, nullptr, 0);
  Release();
  ::munmap(area_, sizeof(EchoArea));
}

void Baselines::Command(std::uint32_t command) {
  area_->command.store(command, std::memory_order_release);
  FutexWake(&area_->command);
}
void Baselines::AwaitIdle() {
  for (std::uint32_t command; (command = area_->command.load(std::memory_order_acquire)) != kIdle;) {
    FutexWaitWhile(&area_->command, command);
  }
}

double Baselines::RingRate(double seconds) {
  Command(kRing);
  std::uint64_t sent = area_->position, received = sent;
  const std::uint64_t first = sent;
  std::uint64_t value = 0;
  const auto until = [&](std::uint64_t target) {  // sends and receives up to `target`
    while (received < target) {
      while (sent < target && sent - received < kWindow) Send(area_->requests, sent, sent), ++sent;
      while (received < sent && TryReceive(area_->replies, received, &value)) {
        if (value != received) Fail("the raw ring mixed up messages");
        ++received;
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
  while (!TryReceive(area_->replies, sent, &value)) Pause();
  AwaitIdle();
  area_->position = sent + 1;
  return rate;
}

double Baselines::RingTrip(double seconds) {
  Command(kRing);
  std::uint64_t at = area_->position, value = 0;
  const auto trip = [&](std::uint64_t message) {
    Send(area_->requests, at, message);
    while (!TryReceive(area_->replies, at, &value)) Pause();
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

double Baselines::FutexTrip(double seconds) {
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

std::span<std::uint64_t> Baselines::Source() {
  if (source_.empty()) source_ = MapWords(kGigabyte, MAP_PRIVATE);
  return source_;
}

void Baselines::Release() {
  for (std::span<std::uint64_t>* memory : {&source_, &target_}) {
    if (!memory->empty()) ::munmap(memory->data(), memory->size_bytes());
    *memory = {};
  }
}

double Baselines::Copy(std::size_t threads) {
  const std::span<std::uint64_t> from = Source();
  if (target_.empty()) target_ = MapWords(kGigabyte, MAP_SHARED);
  const auto once = [&](bool stream) {
    const std::size_t words = from.size() / threads;
    const double begin = Now();
    std::vector<std::thread> others;
    const auto part = [&, stream](std::size_t index) {
      std::uint64_t* to = target_.data() + index * words;
      if (stream)
        StreamCopy(to, from.data() + index * words, words);
      else
        std::memcpy(to, from.data() + index * words, words * sizeof *to);
    };
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(part, i);
    part(0);
    for (std::thread& other : others) other.join();
    return static_cast<double>(words * threads * sizeof(std::uint64_t)) / (Now() - begin) / 1e9;
  };
  const double plain = once(false);
  return std::max(plain, once(true));
}

double Baselines::MallocRate(std::size_t bytes, bool read, double seconds) {
  const std::string source(bytes, 'x');
  std::vector<char*> kept(std::min<std::size_t>(kWindow, (std::size_t{64} << 20) / bytes + 1), nullptr);
  std::vector<char> out(bytes);
  std::uint64_t count = 0;
  double end = 0;
  const double begin = Now();
  while ((end = Now()) - begin < seconds) {
    for (char*& value : kept) {
      std::free(value);
      value = static_cast<char*>(std::malloc(bytes));
      std::memcpy(value, source.data(), bytes);
      asm volatile("" : : "r"(value) : "memory");  // the copy must happen
    }
    if (read) {
      for (char* value : kept) {
        std::memcpy(out.data(), value, bytes);
        asm volatile("" : : "r"(out.data()) : "memory");
      }
    }
    count += kept.size();
  }
  for (char* value : kept) std::free(value);
  return static_cast<double>(count) / (end - begin);
}

double Baselines::Fork(double seconds) {
  area_->seconds = seconds;
  Command(kForks);
  AwaitIdle();
  return area_->seconds;
}

Baseline Baselines::RingPerSecond(double calls) {
  return {"raw ring, window 1000", [this, calls] { return RingRate(kSeconds) / calls; }};
}
Baseline Baselines::RingMs(double calls) {
  return {"raw ring, window 1000", [this, calls] { return calls / RingRate(kSeconds) * 1e3; }};
}
Baseline Baselines::RingTripUs() {
  return {"raw ring, one at a time", [this] { return RingTrip(kSeconds) * 1e6; }};
}
Baseline Baselines::FutexTripUs() {
  return {"two futex wakes", [this] { return FutexTrip(kSeconds) * 1e6; }};
}
Baseline Baselines::CopyGBs(std::size_t threads) {
  return {"memory copy, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
          [this, threads] { return Copy(threads); }};
}
Baseline Baselines::ReadGBs() {
  return {"memory read, 1 thread", [this] {
            const std::span<const std::uint64_t> words = Source();
            const double begin = Now();
            const std::uint64_t sum = Sum(words);
            asm volatile("" : : "r"(sum));
            return static_cast<double>(words.size_bytes()) / (Now() - begin) / 1e9;
          }};
}
Baseline Baselines::MallocPerSecond(std::size_t bytes, bool read) {
  return {read ? "malloc, copy in and out" : "malloc, copy in",
          [this, bytes, read] { return MallocRate(bytes, read, kSeconds); }};
}
Baseline Baselines::MallocMs(std::size_t bytes, double calls) {
  return {"malloc, copy in and out", [this, bytes, calls] { return calls / MallocRate(bytes, true, kSeconds) * 1e3; }};
}
Baseline Baselines::ForkMs() {
  return {"fork, exit, wait", [this] { return Fork(kSeconds) * 1e3; }};
}
Baseline Baselines::ForkPerSecond() {
  return {"fork, exit, wait", [this] { return 1 / Fork(kSeconds); }};
}
Baseline Baselines::SpawnMs() {
  return {"posix_spawn of true", [] {
            char name[] = "true";
            char* arguments[] = {name, nullptr};
            std::vector<double> samples;
            for (int i = 0; i < 10; ++i) {
              const double begin = Now();
              pid_t child = 0;
              if (::posix_spawnp(&child, name, nullptr, nullptr, arguments, environ) != 0) Skip("cannot spawn `true`");
              ::waitpid(child, nullptr, 0);
              samples.push_back(Now() - begin);
            }
            return Percentile(samples, 0.5) * 1e3;
          }};
}
Baseline Baselines::SpinningPercent() {
  return {"a spinning thread", [] {
            const auto used = [] {
              timespec time{};
              ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
              return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
            };
            const double begin = Now(), cpu = used();
            while (Now() - begin < kSeconds) Pause();
            return (used() - cpu) / (Now() - begin) * 100;
          }};
}
Baseline Baselines::RingSlotBytes() {
  return {"slot of the raw ring", [] { return static_cast<double>(sizeof(Slot)); }};
}

std::uint64_t Sum(std::span<const std::uint64_t> words) {
  std::uint64_t sums[4] = {};
  for (std::size_t i = 0; i + 4 <= words.size(); i += 4) {
    for (std::size_t j = 0; j < 4; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = sums[0] + sums[1] + sums[2] + sums[3];
  for (std::size_t i = words.size() - words.size() % 4; i < words.size(); ++i) total += words[i];
  return total;
}

}  // namespace bench
