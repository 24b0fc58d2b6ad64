#include "owner/visit.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <mutex>

#include "base/per_thread.h"

namespace manta::owner {
namespace {

// One per thread, never freed, used again by another thread later.
struct alignas(64) Slot {
  std::atomic<std::uint32_t> depth{0};
  bool taken = false;
  Slot* next = nullptr;
};

std::mutex g_mutex;  // guards the list and `taken`
Slot* g_slots = nullptr;
std::atomic<Owner*> g_open{nullptr};
// When the library is loaded and there is one thread, this costs nothing; later it would wait for all cores (12 ms).
// Forked workers inherit it.
const bool g_registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
// A kernel without membarrier: then visitors pay.
std::atomic<bool> g_fence{true};

struct Mine {
  Slot* slot = nullptr;
  Mine() {
    const std::lock_guard lock(g_mutex);
    for (slot = g_slots; slot != nullptr && slot->taken; slot = slot->next) {
    }
    if (slot == nullptr) {
      slot = new Slot();
      slot->next = g_slots;
      g_slots = slot;
    }
    slot->taken = true;
  }
  ~Mine() {
    const std::lock_guard lock(g_mutex);
    slot->taken = false;
  }
  Mine(const Mine&) = delete;
  Mine& operator=(const Mine&) = delete;
};

std::atomic<std::uint32_t>& ThisDepth() { return base::PerThread<Mine>().slot->depth; }

}  // namespace

Visit::Visit() : depth_(ThisDepth()) {
  const std::uint32_t inside = depth_.load(std::memory_order_relaxed) + 1;
  if (g_fence.load(std::memory_order_relaxed)) {
    depth_.exchange(inside, std::memory_order_seq_cst);
  } else {
    depth_.store(inside, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // Close does the rest
  }
  owner_ = g_open.load(std::memory_order_seq_cst);
}

void Visit::Open(Owner* owner) {
  g_fence.store(!g_registered, std::memory_order_relaxed);
  g_open.store(owner, std::memory_order_seq_cst);
}

void Visit::Close() {
  g_open.store(nullptr, std::memory_order_seq_cst);
  syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

bool Visit::IsOpen() { return g_open.load(std::memory_order_acquire) != nullptr; }

bool Visit::AnybodyElse() {
  const std::atomic<std::uint32_t>* mine = &ThisDepth();
  const std::lock_guard lock(g_mutex);
  for (const Slot* slot = g_slots; slot != nullptr; slot = slot->next) {
    if (&slot->depth != mine && slot->depth.load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

void Visit::WaitForEverybody() {
  while (AnybodyElse()) {
    const timespec pause{0, 50'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace manta::owner
