#include "node/transfer_wire.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "types/id.h"

namespace manta::node {
namespace {

constexpr std::size_t kSendPiece = 1U << 20;       // large writes beat small ones by half
constexpr std::size_t kReceivePiece = 256U << 10;  // is summed while it is in the cache
constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15ULL;
constexpr std::size_t kMaxMessage = 1U << 20;

Status Broken(int error) {
  return Status(Code::kUnavailable, error == 0 ? std::string("the peer closed the connection")
                                               : Cat("the connection failed: ", std::strerror(error)));
}

}  // namespace

void PartSum::Add(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, 8> lanes = lanes_;
  std::size_t at = 0;
  for (; at + 64 <= bytes.size(); at += 64) {
    std::array<std::uint64_t, 8> words;
    std::memcpy(words.data(), bytes.data() + at, 64);
    for (std::size_t i = 0; i < 8; ++i) lanes[i] = (lanes[i] ^ words[i]) * kPrime;
  }
  lanes_ = lanes;
  for (; at < bytes.size(); ++at) tail_ = (tail_ ^ std::to_integer<std::uint64_t>(bytes[at])) * kPrime + 1;
  length_ += bytes.size();
}

std::uint64_t PartSum::value() const {
  std::uint64_t sum = Mix(length_ ^ tail_);
  for (const std::uint64_t lane : lanes_) sum = Mix(sum ^ lane) + kPrime;
  return sum;
}

TransferWire::TransferWire(wire::Stream stream) : stream_(std::move(stream)), raw_(stream_.raw_fd()) {
  if (raw_ >= 0) fcntl(raw_, F_SETFL, fcntl(raw_, F_GETFL) & ~O_NONBLOCK);
}

void TransferWire::Interrupt() const { shutdown(stream_.fd(), SHUT_RDWR); }

Status TransferWire::Write(std::span<const std::byte> bytes, bool more) {
  if (raw_ < 0) return stream_.WriteAll(bytes);
  while (!bytes.empty()) {
    const ssize_t sent = send(raw_, bytes.data(), bytes.size(), MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Broken(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return {};
}

Status TransferWire::Read(std::span<std::byte> into) {
  if (raw_ < 0) return stream_.ReadAll(into);
  while (!into.empty()) {
    const ssize_t got = recv(raw_, into.data(), into.size(), MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Broken(got == 0 ? 0 : errno);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<wire::Frame> TransferWire::ReceiveFrame() {
  std::array<std::byte, sizeof(wire::FrameHeader)> head;
  if (Status status = Read(head); !status.ok()) return status;
  wire::FrameHeader header;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.magic != wire::kFrameMagic || header.size > kMaxMessage || header.fds != 0) {
    return Status(Code::kCorrupt, "not a frame of this protocol");
  }
  std::string body(header.size, '\0');
  if (Status status = Read(std::as_writable_bytes(std::span(body))); !status.ok()) return status;
  wire::FrameReader reader;  // which checks the sum
  reader.Add(head, {});
  reader.Add(std::as_bytes(std::span(body)), {});
  wire::Frame frame;
  const Result<bool> whole = reader.Next(&frame);
  if (!whole.ok()) return whole.status();
  if (!whole.value()) return Status(Code::kCorrupt, "a frame is not whole");
  return frame;
}

Status TransferWire::SendBytes(std::span<const std::byte> bytes) {
  if (raw_ < 0) return stream_.WriteAll(bytes);
  PartSum sum;
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kSendPiece));
    sum.Add(piece);
    if (Status status = Write(piece, true); !status.ok()) return status;
    bytes = bytes.subspan(piece.size());
  }
  const std::uint64_t value = sum.value();
  return Write(std::as_bytes(std::span(&value, 1)), false);
}

Status TransferWire::ReceiveBytes(std::span<std::byte> into) {
  if (raw_ < 0) return stream_.ReadAll(into);
  PartSum sum;
  while (!into.empty()) {
    const std::span<std::byte> piece = into.first(std::min(into.size(), kReceivePiece));
    if (Status status = Read(piece); !status.ok()) return status;
    sum.Add(piece);
    into = into.subspan(piece.size());
  }
  std::uint64_t value = 0;
  if (Status status = Read(std::as_writable_bytes(std::span(&value, 1))); !status.ok()) return status;
  if (value != sum.value()) return Status(Code::kCorrupt, "the bytes that came are not those that were sent");
  return {};
}

}  // namespace manta::node
