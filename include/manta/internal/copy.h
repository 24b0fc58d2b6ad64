// Copies of a megabyte and more, as made when a value is written into the store.
#pragma once

#include <cstddef>

#include "manta/internal/export.h"

namespace manta::internal {

// From this many bytes on, CopyLarge beats memcpy: the destination does not fit into the caches anyway.
inline constexpr std::size_t kCopyLargeFrom = std::size_t{1} << 20;

// memcpy that goes around the caches where the processor can, and uses a second core for tens of megabytes. Correct for
// every size and alignment; the areas must not overlap. What it wrote is visible to other processes as after plain stores.
MANTA_EXPORT void CopyLarge(std::byte* to, const std::byte* from, std::size_t n) noexcept;

}  // namespace manta::internal
