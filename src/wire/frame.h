// Frames carry messages over a stream socket: a fixed header, then the encoded message. Descriptors
// travel with the first byte of their frame.
//
// FrameReader takes whatever bytes arrived and gives back whole frames. It trusts nothing: a bad
// magic, an absurd length or a missing descriptor is a Status, and the connection is to be closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "manta/codec.h"
#include "types/status.h"
#include "wire/messages.h"

namespace manta::wire {

inline constexpr std::uint32_t kFrameMagic = 0x41544e4d;  // "MNTA"
inline constexpr std::uint32_t kMaxFrame = 256U << 20;    // bytes of one message
inline constexpr std::size_t kMaxFds = 8;                 // of one message

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint32_t size = 0;  // of the message that follows
  std::uint64_t call = 0;  // 0: one-way
  std::uint16_t kind = 0;
  std::uint16_t fds = 0;
  std::uint32_t checksum = 0;  // of the message
};
static_assert(sizeof(FrameHeader) == 24);

struct Frame {
  Kind kind = Kind::kFailed;
  std::uint64_t call = 0;
  std::string body;
  std::vector<base::Fd> fds;

  template <typename M>
  [[nodiscard]] Result<M> As() const {
    if (kind != M::kKind) return Status(Code::kCorrupt, Cat("expected message ", int(M::kKind), ", got ", int(kind)));
    return BodyAs<M>();
  }
  // For messages whose body is a value of another room.
  template <typename T>
  [[nodiscard]] Result<T> BodyAs() const {
    try {
      return Decode<T>(std::as_bytes(std::span(body)));
    } catch (const Error& error) {
      return Status(Code::kCorrupt, Cat("message ", int(kind), " does not decode: ", error.what()));
    }
  }
};

class FrameReader {
 public:
  // Adds bytes and descriptors in arrival order.
  void Add(std::span<const std::byte> bytes, std::vector<base::Fd> fds);
  // Takes the next whole frame into *frame. false: more bytes are needed.
  Result<bool> Next(Frame* frame);

 private:
  std::string buffer_;
  std::size_t start_ = 0;
  std::deque<base::Fd> fds_;
};

[[nodiscard]] std::string EncodeFrame(Kind kind, std::uint64_t call, std::span<const std::byte> body, std::size_t fds);

template <typename M>
[[nodiscard]] std::string EncodeFrame(const M& message, std::uint64_t call = 0, std::size_t fds = 0) {
  std::string body(EncodedSize(message), '\0');
  Encode(message, std::as_writable_bytes(std::span(body)));
  return EncodeFrame(M::kKind, call, std::as_bytes(std::span(body)), fds);
}

// A value of another room as the body of a message of this kind.
template <typename T>
[[nodiscard]] std::string EncodeFrameOf(Kind kind, const T& value, std::uint64_t call = 0) {
  std::string body(EncodedSize(value), '\0');
  Encode(value, std::as_writable_bytes(std::span(body)));
  return EncodeFrame(kind, call, std::as_bytes(std::span(body)), 0);
}

// One sendmsg, again if a signal interrupts it; descriptors go with the first byte. -1: see errno.
std::ptrdiff_t SendOnce(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags);
// Blocking: sends it all, descriptors with the first byte. kUnavailable when the peer is gone.
Status SendAll(int socket, std::span<const std::byte> bytes, std::span<const int> fds);
// One recvmsg. *count 0 with ok means the peer closed; with `would_block` set, nothing was there.
Status Receive(int socket, std::span<std::byte> into, std::size_t* count, std::vector<base::Fd>* fds,
               bool* would_block);

}  // namespace manta::wire
