// ChainLink is our end of a link to a chain member: it dials, says hello, and dials again whenever the link is lost.
// What is sent while there is no link is dropped: the chain's protocol sends again what matters, and on_up says when
// to.
//
// Threads: one loop's. Callbacks run on it, never from inside Send; none after destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/loop.h"
#include "control/chain_wire.h"
#include "wire/connection.h"
#include "wire/control_client.h"

namespace manta::control {

class ChainLink {
 public:
  struct Callbacks {
    std::function<void()> on_up;                          // connected, the hello is sent
    std::function<void(const Status& why)> on_down;       // only after on_up
    std::function<void(rules::ChainMessage)> on_message;  // may be null: nothing is expected
  };

  ChainLink(base::Loop& loop, wire::ControlClient::Connect connect, std::function<ChainHello()> hello,
            Callbacks callbacks);
  ~ChainLink();
  ChainLink(const ChainLink&) = delete;
  ChainLink& operator=(const ChainLink&) = delete;

  template <typename M>
  void Send(const M& message) {
    if (up_) connection_->Send(message);
  }
  // The member is there: does not wait for the next attempt.
  void Hurry();
  [[nodiscard]] bool up() const { return up_; }
  // What is wrong with it; ok as soon as the member has answered.
  [[nodiscard]] const Status& trouble() const { return trouble_; }

 private:
  void Dial();
  void Later(const Status& why);

  base::Loop& loop_;
  const wire::ControlClient::Connect connect_;
  const std::function<ChainHello()> hello_;
  const Callbacks callbacks_;
  std::unique_ptr<wire::Connection> connection_;
  bool up_ = false;
  bool heard_ = false;  // something, over this link
  Status trouble_;
  std::int64_t pause_us_ = 0;
  base::Loop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// "@name": a process of this user on this machine; else host:port, with the token.
[[nodiscard]] wire::ControlClient::Connect ConnectTo(base::Loop& loop, const std::string& address,
                                                     const std::shared_ptr<wire::Secrets>& secrets);

}  // namespace manta::control
