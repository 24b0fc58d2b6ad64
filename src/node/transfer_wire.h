// What goes over a connection of role kTransfer, for the threads at its ends: frames, and bytes straight from and into
// shared memory. Blocking; another thread ends it by Interrupt.
//
// Bytes that are not encrypted are summed on the way, a piece at a time while it is in the cache, so that the sum
// costs little beside the kernel's copy. It finds every change within one 8-byte word, and nearly all others:
// broken memory and broken cards, not an adversary.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "types/status.h"
#include "wire/frame.h"
#include "wire/stream.h"

namespace manta::node {

class PartSum {
 public:
  // All but the last call with a multiple of 64 bytes.
  // `plain`: without what this processor can do faster; the same sum.
  void Add(std::span<const std::byte> bytes, bool plain = false);
  [[nodiscard]] std::uint64_t value() const;

 private:
  alignas(32) std::array<std::uint64_t, 8> lanes_{1, 2, 3, 4, 5, 6, 7, 8};
  std::uint64_t line_ = 0;  // lines of 64 bytes so far
  std::uint64_t tail_ = 0;
  std::uint64_t length_ = 0;
};

class TransferWire {
 public:
  explicit TransferWire(wire::Stream stream);

  template <typename M>
  Status Send(const M& message, bool more = false) {
    const std::string frame = wire::EncodeFrame(message);
    return Write(std::as_bytes(std::span(frame)), more);
  }
  template <typename M>
  Result<M> Receive() {
    Result<wire::Frame> frame = ReceiveFrame();
    if (!frame.ok()) return frame.status();
    return frame->template As<M>();
  }
  // The bytes of a part, and their sum.
  Status SendBytes(std::span<const std::byte> bytes);
  // kCorrupt: the sum is wrong, and the connection still good.
  Status ReceiveBytes(std::span<std::byte> into);

  // From any thread: whatever waits here fails, now and from now on.
  void Interrupt() const;

 private:
  Status Write(std::span<const std::byte> bytes, bool more);
  Status Read(std::span<std::byte> into);
  Result<wire::Frame> ReceiveFrame();

  wire::Stream stream_;
  int raw_ = -1;  // blocking; -1: encrypted
};

}  // namespace manta::node
