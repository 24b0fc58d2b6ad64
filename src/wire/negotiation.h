// Negotiation takes a connected socket through everything that comes before the first useful byte: TLS if it is to be,
// then the handshake (wire/handshake.h). It never blocks: Advance goes as far as the socket allows and says what
// to wait for. Listener and Dial drive it from a loop, DialAndWait from a plain thread.
//
// A listener tells TLS from plain by the first byte. Plain is taken only when both ends are on this machine. Reads
// exactly the bytes of the handshake: what follows is the stream's.
//
// Threads: one. Time limits are the driver's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "wire/address.h"
#include "wire/handshake.h"
#include "wire/stream.h"

namespace manta::wire {

// An open connection between two members.
struct Link {
  Stream stream;
  LinkRole role = LinkRole::kTool;
  std::uint16_t version = 0;
  Id cluster;
  SocketAddress local;
  SocketAddress peer;
};

class Negotiation {
 public:
  enum class Step : std::uint8_t { kWantsRead, kWantsWrite, kDone, kFailed };
  // What went wrong, for counting.
  enum class Failure : std::uint8_t { kNone, kRefused, kGarbage, kTls, kGone };

  struct ListenSide {
    ListenerHandshake::Options handshake;  // nonce and binding are set here
    std::shared_ptr<TlsContext> tls;       // null: plain only
  };
  struct DialSide {
    DialerHandshake::Options handshake;  // nonce and binding are set here
    std::shared_ptr<TlsContext> tls;     // null: plain
    std::string name;                    // that the peer's certificate must carry; empty: any
  };

  // The socket is connected (or, dialling, becomes so: it is writable then).
  Negotiation(base::Fd socket, ListenSide side);
  Negotiation(base::Fd socket, DialSide side);

  Step Advance();
  [[nodiscard]] int fd() const { return link_.stream.fd(); }
  [[nodiscard]] Link TakeLink() { return std::move(link_); }
  [[nodiscard]] const Status& why() const { return why_; }
  [[nodiscard]] Failure failure() const { return failure_; }
  // Ours to a dialer, or the listener's to us.
  [[nodiscard]] Refusal refusal() const {
    if (listener_) return listener_->refusal();
    return dialer_ ? dialer_->refusal() : Refusal::kNone;
  }

 private:
  enum class Stage : std::uint8_t { kConnecting, kSniffing, kTls, kHandshake, kEnded };

  Step Connect();
  Step Sniff();
  Step Tls();
  Step Shake();
  void StartHandshake();
  Step Send();  // kDone: all is sent
  Step Fail(Failure failure, Status why);

  Link link_;
  Stage stage_;
  std::optional<ListenSide> listen_;
  std::optional<DialSide> dial_;
  std::optional<ListenerHandshake> listener_;
  std::optional<DialerHandshake> dialer_;
  std::string outgoing_;
  Failure failure_ = Failure::kNone;
  Status why_;
};

// What every TCP socket of ours gets: no delay for small frames, and an end for a peer that vanished.
void SetSocketOptions(int socket);

}  // namespace manta::wire
