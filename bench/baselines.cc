#include "baselines.h"

#include <errno.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr double kSeconds = 0.1;  // of one measurement

std::span<std::uint64_t> MapWords(std::size_t bytes, int sharing) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Fail("cannot map " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // where the system allows it
  const std::span words(static_cast<std::uint64_t*>(memory), bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15ULL;
  return words;
}

// Stores that go around the caches, a line at a time; `words` is a multiple of a line, both sides aligned.
#ifdef __SSE2__
__attribute__((target("avx2"))) void StreamWide(std::uint64_t* to, const std::uint64_t* from, std::size_t words) {
  for (std::size_t i = 0; i < words; i += 8) {
    const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + 4));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 4), b);
  }
  _mm_sfence();
}
void StreamNarrow(std::uint64_t* to, const std::uint64_t* from, std::size_t words) {
  for (std::size_t i = 0; i < words; i += 2) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  _mm_sfence();
}
void StreamCopy(std::uint64_t* to, const std::uint64_t* from, std::size_t words) {
  if (__builtin_cpu_supports("avx2"))
    StreamWide(to, from, words);
  else
    StreamNarrow(to, from, words);
}
#else
void StreamCopy(std::uint64_t* to, const std::uint64_t* from, std::size_t words) {
  std::memcpy(to, from, words * sizeof *to);
}
#endif

}  // namespace

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

double Baselines::FreshCopy() {
  const std::span<std::uint64_t> from = Source();
  void* memory = ::mmap(nullptr, kGigabyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Fail(std::string("cannot map 1 GB: ") + std::strerror(errno));
  ::madvise(memory, kGigabyte, MADV_HUGEPAGE);
  const double begin = Now();
  StreamCopy(static_cast<std::uint64_t*>(memory), from.data(), from.size());
  const double seconds = Now() - begin;
  ::munmap(memory, kGigabyte);
  return static_cast<double>(kGigabyte) / seconds / 1e9;
}

double Baselines::MallocRate(std::size_t bytes, bool read, double seconds) {
  const std::string source(bytes, 'x');
  std::vector<char*> kept(ValuesAtOnce(bytes), nullptr);
  std::vector<char> out(bytes);
  const auto pass = [&] {
    for (char*& value : kept) {
      std::free(value);
      value = static_cast<char*>(std::malloc(bytes));
      std::memcpy(value, source.data(), bytes);
      asm volatile("" : : "r"(value) : "memory");  // the copy must happen
    }
    for (std::size_t i = 0; read && i < kept.size(); ++i) {
      std::memcpy(out.data(), kept[i], bytes);
      asm volatile("" : : "r"(out.data()) : "memory");
    }
  };
  // New pages are not what is asked for; malloc stops mapping large blocks one by one after the first few.
  for (int i = 0; i < 3; ++i) pass();
  std::uint64_t count = 0;
  double end = 0;
  const double begin = Now();
  for (; (end = Now()) - begin < seconds; count += kept.size()) pass();
  for (char* value : kept) std::free(value);
  return static_cast<double>(count) / (end - begin);
}

Baseline Baselines::RingPerSecond(double calls) {
  return {"raw ring, window 1000", [this, calls] { return echo_.RingRate(kSeconds) / calls; }};
}
Baseline Baselines::RingMs(double calls) {
  return {"raw ring, window 1000", [this, calls] { return calls / echo_.RingRate(kSeconds) * 1e3; }};
}
Baseline Baselines::RingTripUs() {
  return {"raw ring, one at a time", [this] { return echo_.RingTrip(kSeconds) * 1e6; }};
}
Baseline Baselines::FutexTripUs() {
  return {"two futex wakes", [this] { return echo_.FutexTrip(kSeconds) * 1e6; }};
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
  return {"fork, exit, wait", [this] { return echo_.Fork(kSeconds) * 1e3; }};
}
Baseline Baselines::ForkPerSecond() {
  return {"fork, exit, wait", [this] { return 1 / echo_.Fork(kSeconds); }};
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
            while (Now() - begin < kSeconds) {
            }
            return (used() - cpu) / (Now() - begin) * 100;
          }};
}
Baseline Baselines::RingSlotBytes() {
  return {"slot of the raw ring", [] { return static_cast<double>(Echo::kSlotBytes); }};
}

std::size_t ValuesAtOnce(std::size_t bytes) {
  return std::clamp<std::size_t>((std::size_t{32} << 20) / bytes, 8, Echo::kWindow);
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
