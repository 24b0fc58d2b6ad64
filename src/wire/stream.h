// Stream is a connected socket that is read and written without blocking: a Unix socket, plain TCP or TLS over
// TCP, all alike to what is above. Descriptors can be passed over Unix sockets only.
//
// On a loop (level-triggered): watch fd() for EPOLLIN, and for EPOLLOUT while there is something to send or
// WantsWrite(). When a turn of reading ends before kWouldBlock, look at Buffered(): TLS may hold bytes of which the
// socket knows nothing any more.
//
// Bulk data: raw_fd() is the socket of a stream that is not encrypted, for writev and recv straight into shared
// memory; -1 under TLS (use Read into that memory: one copy, by the decryption).
//
// Threads: one at a time. Destroying it closes the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "types/status.h"
#include "wire/tls.h"

namespace manta::wire {

class Stream {
 public:
  Stream() = default;  // none
  // The socket is made non-blocking.
  explicit Stream(base::Fd socket, std::unique_ptr<TlsSession> tls = nullptr);
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream() { Close(); }

  // kSome with at least one byte, unless `into` is empty. kClosed also after a reset, but not under TLS: there an end
  // that the peer did not announce is kFailed.
  IoResult Read(std::span<std::byte> into, std::vector<base::Fd>* fds = nullptr);
  // May take fewer than all. Under TLS what was taken may still wait for the socket: while WantsWrite(), call again
  // (with more, or with none) when it is writable. kClosed: the peer is gone; it may have left words to read.
  IoResult Write(std::span<const std::byte> bytes, std::span<const int> fds = {});
  // Many bytes follow: TLS may use records that are faster for these. Nothing changes for the peer.
  void ExpectBulk() {
    if (tls_) tls_->UseBulkRecords();
  }
  // The peer learns that this is the end; the descriptor stays until Close or destruction.
  void Shutdown();
  void Close();

  [[nodiscard]] bool valid() const { return socket_.valid(); }
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] int raw_fd() const { return tls_ ? -1 : socket_.get(); }
  [[nodiscard]] bool encrypted() const { return tls_ != nullptr; }
  [[nodiscard]] bool Buffered() const { return tls_ && tls_->Buffered(); }
  [[nodiscard]] bool WantsWrite() const { return tls_ && tls_->WantsWrite(); }
  // Why the last Read or Write was kFailed.
  [[nodiscard]] const Status& failure() const { return failure_; }

  // ---- for plain threads: wait, up to a time in microseconds (-1: for ever) ----
  Status WriteAll(std::span<const std::byte> bytes, std::int64_t timeout_us = -1);
  // Fills `into`; kUnavailable if the peer closes before.
  Status ReadAll(std::span<std::byte> into, std::int64_t timeout_us = -1);
  // As Read, but waits for the first byte. 0: the peer closed.
  Result<std::size_t> ReadSome(std::span<std::byte> into, std::int64_t timeout_us = -1);

  // ---- for this room ----
  [[nodiscard]] TlsSession* tls() { return tls_.get(); }
  void StartTls(std::unique_ptr<TlsSession> tls) { tls_ = std::move(tls); }

 private:
  IoResult Fail(int error);

  base::Fd socket_;
  std::unique_ptr<TlsSession> tls_;
  Status failure_;
};

// Waits until the descriptor is ready for `events` (POLLIN, POLLOUT) or has failed; false: the time is over.
// `deadline_us` as base::NowMicros, -1: none.
[[nodiscard]] bool WaitFor(int fd, short events, std::int64_t deadline_us);

}  // namespace manta::wire
