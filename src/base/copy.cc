#include "manta/internal/copy.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace manta::internal {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 1024;  // bytes; measured: 7% over leaving it to the hardware

// Ordinary stores read each destination line before they overwrite it; streaming stores do not,
// which saves a third of the memory traffic. `to` is line-aligned, n a multiple of a line.
__attribute__((target("avx2"))) void StreamAvx2(std::byte* to, const std::byte* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + i) + kAhead, _MM_HINT_NTA);  // past the end is harmless
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
  }
}

void StreamSse2(std::byte* to, const std::byte* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), a);
  }
}

void CopyAlone(std::byte* to, const std::byte* from, std::size_t n) {
  if (n == 0) return;
  const std::size_t head = std::min(n, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  const std::size_t body = (n - head) / kLine * kLine;
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) {
    StreamAvx2(to + head, from + head, body);
  } else {
    StreamSse2(to + head, from + head, body);
  }
  std::memcpy(to + head + body, from + head + body, n - head - body);
  // Streaming stores are not ordered with later ones: without the fence a reader could see "sealed"
  // before the bytes.
  _mm_sfence();
}
#else
void CopyAlone(std::byte* to, const std::byte* from, std::size_t n) {
  if (n != 0) std::memcpy(to, from, n);
}
#endif

// From this size on, another thread is worth its while: it takes 50 µs to come, and a single core needs 3 ms. One core
// copies as fast as two where the memory has been used before, but new memory must be made first, by the kernel: it
// zeroes every page. Measured: 12 GB/s with one core, 15 with two.
constexpr std::size_t kShareFrom = std::size_t{64} << 20;
// What a thread takes at a time: in a page just made, most lines are still in the cache.
constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr std::size_t kSmallPage = 4096;

struct Job {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t n = 0;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};  // bytes

  // Touches `to` and `from` only while pieces are left, or being copied by the caller.
  void Work() {
    for (std::size_t at = 0; (at = next.fetch_add(kPiece, std::memory_order_relaxed)) < n;) {
      const std::size_t size = std::min(kPiece, n - at);
      // In one call rather than page by page, if they are small. An old kernel does not know it: then page by page.
      const auto page = reinterpret_cast<std::uintptr_t>(to + at) / kSmallPage * kSmallPage;
      const auto end = reinterpret_cast<std::uintptr_t>(to + at + size);
      (void)madvise(reinterpret_cast<void*>(page), end - page, MADV_POPULATE_WRITE);
      CopyAlone(to + at, from + at, size);
      done.fetch_add(size, std::memory_order_release);
      done.notify_all();
    }
  }
};

// Nobody waits for the thread itself: if it comes late, all is done, and it leaves.
void SendHelper(const std::shared_ptr<Job>& job) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the user's threads
  auto held = std::make_unique<std::shared_ptr<Job>>(job);
  const auto work = [](void* its) -> void* {
    (*std::unique_ptr<std::shared_ptr<Job>>(static_cast<std::shared_ptr<Job>*>(its)))->Work();
    return nullptr;
  };
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, work, held.get()) == 0) {  // else the copy is made by one
    pthread_detach(thread);
    [[maybe_unused]] const auto* its_own = held.release();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void CopyLarge(std::byte* to, const std::byte* from, std::size_t n) noexcept {
  static const bool cores = std::thread::hardware_concurrency() > 1;
  if (n < kShareFrom || !cores) return CopyAlone(to, from, n);
  const auto job = std::make_shared<Job>();
  job->to = to;
  job->from = from;
  job->n = n;
  SendHelper(job);
  job->Work();
  for (std::size_t done = 0; (done = job->done.load(std::memory_order_acquire)) < n;) job->done.wait(done);
}

}  // namespace manta::internal
