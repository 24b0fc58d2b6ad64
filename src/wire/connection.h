// Connection is one peer's stream of frames on the loop: reads whole frames as they arrive, and
// sends without ever blocking.
//
// A peer may send anything and may stop reading. Bytes that are no frame, descriptors nobody asked
// for, or more than kMaxOutgoing bytes unread by the peer end this connection and no other.
//
// Lifetime: the owner destroys it from its on_close, or later; never from inside on_frame (Close
// there, which calls on_close once from the loop's next callback). No callback after destruction.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "wire/frame.h"
#include "wire/stream.h"

namespace manta::wire {

class Connection {
 public:
  using OnFrame = std::function<void(Frame& frame)>;
  using OnClose = std::function<void(const Status& why)>;  // ok: the peer closed

  static constexpr std::size_t kMaxOutgoing = 64U << 20;

  // Over a Unix socket, or what a Listener or Dial gave: plain or encrypted, it is all the same from here.
  Connection(base::Loop& loop, Stream stream, OnFrame on_frame, OnClose on_close);
  // `socket` must be non-blocking.
  Connection(base::Loop& loop, base::Fd socket, OnFrame on_frame, OnClose on_close)
      : Connection(loop, Stream(std::move(socket)), std::move(on_frame), std::move(on_close)) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] Status Start();

  // One-way, or the answer to `call`. Descriptors stay the caller's.
  template <typename M>
  void Send(const M& message, std::uint64_t call = 0, std::initializer_list<int> fds = {}) {
    if (!open()) return;
    SendFrame(EncodeFrame(message, call, fds.size()), fds);
  }
  // A whole frame, from EncodeFrame.
  void SendEncoded(std::string frame) {
    if (open()) SendFrame(std::move(frame), {});
  }
  void Fail(std::uint64_t call, const Status& why) {
    if (call != 0) Send(Failed{ToFailure(why)}, call);
  }

  // Stops reading and writing; on_close follows from the loop.
  void Close(Status why);
  // Stops reading, sends what is still outgoing, then closes. For a last word to a refused peer.
  void CloseAfterSending(Status why);
  // Reads whatever is there now, as if the loop had found it readable.
  void ReadNow();

  [[nodiscard]] bool open() const { return state_ == State::kOpen; }
  [[nodiscard]] int fd() const { return stream_.fd(); }
  [[nodiscard]] bool encrypted() const { return stream_.encrypted(); }
  [[nodiscard]] std::size_t outgoing_bytes() const { return outgoing_bytes_; }

 private:
  enum class State { kOpen, kLastWords, kClosed };
  struct Outgoing {
    std::string bytes;
    std::size_t sent = 0;
    std::vector<base::Fd> fds;
  };

  void SendFrame(std::string bytes, std::initializer_list<int> fds);
  // One write. False: nothing was sent, and the connection closed or is to be written to later.
  bool SendSome(std::string_view bytes, std::span<const int> fds, std::size_t* sent);
  void OnEvents(std::uint32_t events);
  void Read();
  void ReadOn();
  void Write();
  void WatchFor();

  base::Loop& loop_;
  Stream stream_;
  OnFrame on_frame_;
  OnClose on_close_;
  State state_ = State::kOpen;
  Status why_;
  bool watched_ = false;
  bool short_read_is_all_ = false;
  std::uint32_t watching_ = 0;
  base::Loop::TimerId closing_ = 0;
  base::Loop::TimerId reading_ = 0;  // goes on with what the stream has and the socket has not
  FrameReader reader_;
  std::size_t spare_fds_ = 0;  // received, and not yet taken by a frame
  std::deque<Outgoing> outgoing_;
  std::size_t outgoing_bytes_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::wire
