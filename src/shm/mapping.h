// Mapping owns a mapped range of a shared-memory file; MakeMemory makes such a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/fd.h"
#include "types/status.h"

namespace manta::shm {

// An anonymous, size-sealed file of `bytes` bytes: no name anywhere, gone with its last user. Pages
// are taken when first touched.
Result<base::Fd> MakeMemory(const std::string& name, std::uint64_t bytes);

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  static Result<Mapping> Of(int fd, std::uint64_t offset, std::uint64_t bytes, bool writable);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace manta::shm
