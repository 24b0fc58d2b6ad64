#include "shm/node_area.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace manta::shm {
namespace {

constexpr std::uint32_t kNodeMagic = 0x4e4d5431;
constexpr std::size_t kNodeBytes = 4096 + kMaxProcesses * sizeof(Doorbell);

long Futex(std::atomic<std::uint32_t>* word, int op, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), op, value, timeout, nullptr, 0);
}

}  // namespace

void Doorbell::Ring() {
  if (sleeping.load(std::memory_order_seq_cst) == 0) return;
  if (sleeping.exchange(0, std::memory_order_seq_cst) == 0) return;
  rings.fetch_add(1, std::memory_order_seq_cst);
  Futex(&rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::Rouse() {
  sleeping.store(0, std::memory_order_seq_cst);
  rings.fetch_add(1, std::memory_order_seq_cst);
  Futex(&rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::Sleep(std::uint32_t ticket, std::int64_t timeout_us) {
  RunsHere();
  timespec wait{};
  wait.tv_sec = timeout_us / 1000000;
  wait.tv_nsec = (timeout_us % 1000000) * 1000;
  Futex(&rings, FUTEX_WAIT, ticket, timeout_us < 0 ? nullptr : &wait);
}

Result<NodeArea> NodeArea::Create(std::uint32_t cores) {
  Result<base::Fd> fd = MakeMemory("manta-node", kNodeBytes);
  if (!fd.ok()) return fd.status();
  Result<NodeArea> area = Open(std::move(*fd));
  if (!area.ok()) return area;
  area->header().version = 1;
  area->header().cores = cores;
  area->header().bells.store(1);  // the daemon's own
  area->header().magic = kNodeMagic;
  return area;
}

Result<NodeArea> NodeArea::Open(base::Fd fd) {
  NodeArea area;
  Result<Mapping> map = Mapping::Of(fd.get(), 0, kNodeBytes, true);
  if (!map.ok()) return map.status();
  area.fd_ = std::move(fd);
  area.map_ = std::move(*map);
  return area;
}

bool NodeArea::TakeSpinToken(Doorbell& bell) {
  std::atomic<std::int32_t>& spinners = header().spinners;
  const auto limit = static_cast<std::int32_t>(header().cores);
  if (spinners.load(std::memory_order_relaxed) >= limit) return false;
  if (spinners.fetch_add(1, std::memory_order_relaxed) >= limit) {
    spinners.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  bell.spinning.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void NodeArea::ReturnSpinToken(Doorbell& bell) {
  bell.spinning.fetch_sub(1, std::memory_order_relaxed);
  header().spinners.fetch_sub(1, std::memory_order_relaxed);
}

std::uint64_t NodeArea::OnDisk() {
  std::uint64_t bytes = 0;
  const std::uint32_t used = header().bells.load(std::memory_order_seq_cst);
  for (ProcessId process = 0; process < used; ++process) bytes += bell(process).on_disk.load(std::memory_order_seq_cst);
  return bytes;
}

void NodeArea::Reset(ProcessId process) {
  Doorbell& bell = this->bell(process);
  if (SlotOf(process) >= header().bells.load()) header().bells.store(SlotOf(process) + 1);
  const auto held = static_cast<std::int32_t>(bell.spinning.exchange(0));
  if (held > 0) header().spinners.fetch_sub(held);
  bell.sleeping.store(0);
  bell.core.store(-1);
  bell.flags.store(0);
  bell.state.store(Doorbell::kIdle);
  bell.current.store(0);
  bell.on_disk.store(0);
  bell.submitted.store(0);
  bell.completed.store(0);
  bell.ran.store(0);
}

}  // namespace manta::shm
