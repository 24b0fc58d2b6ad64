#include "shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace manta::shm {

Result<base::Fd> MakeMemory(const std::string& name, std::uint64_t bytes) {
  base::Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return Status(errno == EMFILE || errno == ENFILE ? Code::kIo : Code::kOutOfMemory,
                  Cat("cannot make shared memory '", name, "': ", std::strerror(errno),
                      errno == EMFILE ? "; raise `ulimit -n`" : ""));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status(Code::kOutOfMemory,
                  Cat("cannot size shared memory '", name, "' to ", Bytes(bytes), ": ", std::strerror(errno)));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status(Code::kIo, Cat("cannot seal shared memory '", name, "': ", std::strerror(errno)));
  }
  return fd;
}

Result<Mapping> Mapping::Of(int fd, std::uint64_t offset, std::uint64_t bytes, bool writable) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || static_cast<std::uint64_t>(info.st_size) < offset + bytes) {
    return Status(Code::kCorrupt, Cat("shared memory is smaller than ", Bytes(offset + bytes), " as promised"));
  }
  void* at = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_NORESERVE, fd,
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) {
    return Status(Code::kOutOfMemory, Cat("cannot map ", Bytes(bytes), " of shared memory: ", std::strerror(errno),
                                          "; is the address space limited (`ulimit -v`)?"));
  }
  Mapping map;
  map.data_ = static_cast<std::byte*>(at);
  map.size_ = bytes;
  return map;
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace manta::shm
