// Messages of the control store from a hostile peer: whatever arrives decodes or is a Status, and what decodes encodes
// again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "wire/control_messages.h"
#include "wire/frame.h"

namespace {

using namespace manta::wire;  // NOLINT(google-build-using-namespace): every message by name

using AllMessages =
    std::tuple<ControlHello, ControlWelcome, ControlGet, ControlValue, ControlWrite, ControlWritten, ControlScan,
               ControlEntries, ControlWatch, ControlChanges, ControlUnwatch, ControlWatchEnded>;

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
  Frame frame;
  frame.body.assign(reinterpret_cast<const char*>(data), size);
  TryAll(frame, static_cast<AllMessages*>(nullptr));
  return 0;
}
