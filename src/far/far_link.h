// Link is one open connection between an owner and a worker on another node. Frames go out from whatever thread has
// something to say, at once if the socket takes them: a hand-over to another thread would cost a wake-up. Frames come
// in on the far thread.
//
// Lifetime: shared; the callbacks are dropped when it has closed. on_closed is called once, on the far thread, after
// the last frame that arrived; ok: the peer closed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "far/thread.h"
#include "wire/frame.h"
#include "wire/stream.h"

namespace manta::far {

class Link : public std::enable_shared_from_this<Link> {
 public:
  using OnFrame = std::function<void(wire::Frame& frame)>;
  using OnClosed = std::function<void(const Status& why)>;

  Link(Thread& thread, wire::Stream stream) : thread_(thread), stream_(std::move(stream)) {}

  // On the far thread, once.
  void Start(OnFrame on_frame, OnClosed on_closed);

  // One or more whole frames; nothing happens when it has closed.
  void Send(std::string frames);
  template <typename M>
  void Send(const M& message, std::uint64_t call = 0) {
    Send(wire::EncodeFrame(message, call));
  }
  // Sends what is outgoing, then closes. Reading goes on until then.
  void CloseAfterSending();
  // Reads what has arrived already, then closes.
  void Close();
  // The same after a while, if it is still open then.
  void CloseLater(std::int64_t micros);

  [[nodiscard]] bool open() const { return open_.load(std::memory_order_acquire); }
  // Not yet taken by the socket.
  [[nodiscard]] std::size_t outgoing() const { return outgoing_bytes_.load(std::memory_order_relaxed); }

 private:
  void OnEvents(std::uint32_t events);
  void Read();
  bool WriteLocked();  // false: the connection failed
  void WatchFor();
  void Finish(const Status& why);

  Thread& thread_;
  std::atomic<bool> open_{true};
  std::atomic<std::size_t> outgoing_bytes_{0};
  std::mutex mutex_;  // guards what follows
  wire::Stream stream_;
  std::string outgoing_;
  std::size_t sent_ = 0;
  bool closing_ = false;
  // The far thread's own.
  bool watching_writes_ = false;
  wire::FrameReader reader_;
  OnFrame on_frame_;
  OnClosed on_closed_;
};

}  // namespace manta::far
