// A digest of bytes, for telling whether a task that runs again makes the values that it made before. It is not
// cryptographic: it finds accidents, not attacks. Values of many megabytes are digested about as fast as they are
// copied, because eight independent lanes keep the multiplier busy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace manta::base {

// `seed`: the digest of what comes before.
[[nodiscard]] std::uint64_t DigestBytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace manta::base
