// Frames and messages of a hostile peer: whatever arrives, in whatever pieces, is a frame or a Status, and every
// message that decodes encodes again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "wire/all_messages.h"
#include "wire/frame.h"

namespace {

using namespace manta::wire;  // NOLINT(google-build-using-namespace)

// What decodes must encode again to something that decodes.
template <typename M>
void TryAs(Frame& frame) {
  frame.kind = M::kKind;
  const manta::Result<M> message = frame.As<M>();
  if (!message.ok()) return;
  FrameReader reader;
  const std::string bytes = EncodeFrame(message.value(), frame.call);
  reader.Add(std::as_bytes(std::span(bytes)), {});
  Frame again;
  const manta::Result<bool> whole = reader.Next(&again);
  if (!whole.ok() || !whole.value() || !again.As<M>().ok()) __builtin_trap();
}

template <typename... M>
void TryAll(Frame& frame, std::tuple<M...>*) {
  (TryAs<M>(frame), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  // As a stream, in pieces of the size the first byte says.
  FrameReader reader;
  const std::size_t piece = std::to_integer<std::size_t>(input[0]) + 1;
  for (std::size_t at = 1; at < input.size(); at += piece) {
    reader.Add(input.subspan(at, std::min(piece, input.size() - at)), {});
    Frame frame;
    for (;;) {
      const manta::Result<bool> next = reader.Next(&frame);
      if (!next.ok()) return 0;
      if (!next.value()) break;
      TryAll(frame, static_cast<AllMessages*>(nullptr));
    }
  }
  // As a message whose frame was fine: checksums would keep the fuzzer out.
  Frame frame;
  frame.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  TryAll(frame, static_cast<AllMessages*>(nullptr));
  return 0;
}
