#include "store/memory.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/memory_group.h"
#include "shm/mapping.h"
#include "store/segment.h"
#include "types/text.h"

namespace manta::store {
namespace {

// A tmpfs that is mounted nowhere: reachable through this descriptor alone.
base::Fd MountHuge() {
  const base::Fd context(static_cast<int>(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC)));
  if (!context.valid()) return {};
  const auto set = [&](const char* key, const char* value) {
    return syscall(SYS_fsconfig, context.get(), FSCONFIG_SET_STRING, key, value, 0) == 0;
  };
  // The keeper counts bytes itself; a limit here would only turn a mistake of ours into SIGBUS.
  if (!set("size", "0") || !set("huge", "always") || !set("mode", "0700")) return {};
  if (syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return {};
  return base::Fd(static_cast<int>(
      syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)));
}

base::Fd Nameless(int folder) {
  base::Fd fd(openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid()) return fd;
  fd.Reset(openat(folder, "segment", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid()) unlinkat(folder, "segment", 0);
  return fd;
}

}  // namespace

SegmentMemory::SegmentMemory(bool huge) {
  if (!huge) return;
  mount_ = MountHuge();
  if (mount_.valid() && !Nameless(mount_.get()).valid()) mount_.Reset(-1);  // may mount, but not use it
}

Result<base::Fd> SegmentMemory::Make(std::uint64_t bytes) const {
  // A smaller file would still take a huge page, which nobody counted.
  if (!mount_.valid() || bytes % kHugePage != 0) return shm::MakeMemory("manta-segment", bytes);
  base::Fd fd = Nameless(mount_.get());
  if (!fd.valid()) {
    return Status(errno == EMFILE || errno == ENFILE ? Code::kIo : Code::kOutOfMemory,
                  Cat("cannot make a segment of ", Bytes(bytes), ": ", std::strerror(errno),
                      errno == EMFILE ? "; raise `ulimit -n`" : ""));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status(Code::kOutOfMemory, Cat("cannot size a segment to ", Bytes(bytes), ": ", std::strerror(errno)));
  }
  return fd;
}

Result<base::Fd> SegmentMemory::ReadOnly(int fd) {
  base::Fd reopened(open(Cat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reopened.valid()) {
    return Status(Code::kIo, Cat("cannot open a segment for reading: ", std::strerror(errno),
                                 errno == EMFILE ? "; raise `ulimit -n`" : "; is /proc mounted?"));
  }
  return reopened;
}

void SegmentMemory::GiveBack(int fd, std::uint64_t from, std::uint64_t to) {
  // Failing leaves the pages to the last process that unmaps them.
  (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                  static_cast<off_t>(to - from));
}

std::uint64_t AvailableMemory() {
  std::uint64_t available = ~0ULL;
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    if (key == "MemAvailable:") {
      std::uint64_t kib = 0;
      if (info >> kib) available = kib * 1024;
      break;
    }
    info.ignore(256, '\n');
  }
  // The control group this process is in, and those above it, may allow less.
  for (const base::MemoryGroup& group : base::MemoryGroups()) {
    available = std::min(available, group.limit > group.used ? group.limit - group.used : 0);
  }
  return available;
}

Status CheckStoreBytes(std::uint64_t bytes) {
  const std::uint64_t memory =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > memory) {
    return {Code::kInvalid, Cat("a store of ", Bytes(bytes), " (store_bytes) is more than the ", Bytes(memory),
                                " of memory that this machine has; give less")};
  }
  if (bytes < (1ULL << 20)) {
    return {Code::kInvalid, Cat("a store of ", Bytes(bytes), " (store_bytes) is too small; give at least 1 MiB")};
  }
  return {};
}

}  // namespace manta::store
