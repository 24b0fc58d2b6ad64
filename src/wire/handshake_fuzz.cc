// The handshake against a hostile peer, both sides: whatever arrives, in whatever pieces, ends in a Status, and
// nobody who does not know the token is accepted.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/handshake.h"

namespace {

using manta::wire::DialerHandshake;
using manta::wire::ListenerHandshake;

const manta::wire::Token kKey = {std::byte{7}};

template <typename Side>
void Feed(Side& side, std::span<const std::byte> input, std::size_t piece) {
  while (!input.empty() && side.wanted() > 0) {
    if (side.wanted() > manta::wire::kLinkHeader + manta::wire::kMaxHandshakeBody) __builtin_trap();
    const std::size_t count = std::min({piece, side.wanted(), input.size()});
    if (!side.Take(input.first(count)).ok()) return;
    input = input.subspan(count);
  }
  if (side.done()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  const std::size_t piece = std::to_integer<std::size_t>(input[0] & std::byte{127}) + 1;
  if ((data[0] & 128U) != 0) {
    DialerHandshake::Options options;
    options.key = kKey;
    DialerHandshake side(options);
    Feed(side, input.subspan(1), piece);
  } else {
    ListenerHandshake::Options options;
    options.cluster = manta::Id{1, 2};
    options.find_key = [](manta::wire::LinkRole, const manta::wire::KeyId& id) {
      // Any key id that begins with 0, so that the search gets past it.
      return id[0] == std::byte{0} ? std::optional(kKey) : std::nullopt;
    };
    ListenerHandshake side(options);
    Feed(side, input.subspan(1), piece);
  }
  return 0;
}
