#include "control/chain_link.h"

#include <algorithm>
#include <utility>

namespace manta::control {
namespace {

constexpr std::int64_t kFirstPause = 1'000;  // microseconds
constexpr std::int64_t kLongestPause = 100'000;

}  // namespace

ChainLink::ChainLink(base::Loop& loop, wire::ControlClient::Connect connect, std::function<ChainHello()> hello,
                     Callbacks callbacks)
    : loop_(loop), connect_(std::move(connect)), hello_(std::move(hello)), callbacks_(std::move(callbacks)) {
  timer_ = loop_.After(0, [this] {
    timer_ = 0;
    Dial();
  });
}

ChainLink::~ChainLink() {
  *alive_ = false;
  if (timer_ != 0) loop_.Cancel(timer_);
}

void ChainLink::Dial() {
  connect_([this, alive = alive_](Result<wire::Stream> stream) {
    if (!*alive) return;
    if (!stream.ok()) return Later(stream.status());
    connection_ = std::make_unique<wire::Connection>(
        loop_, std::move(*stream),
        [this](wire::Frame& frame) {
          Result<ChainPacket> packet = frame.As<ChainPacket>();
          if (packet.ok()) {
            heard_ = true;
            trouble_ = {};
            if (callbacks_.on_message) callbacks_.on_message(std::move(packet->message));
            return;
          }
          const Result<wire::Failed> failed = frame.As<wire::Failed>();
          connection_->Close(failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message)
                                         : packet.status());
        },
        [this](const Status& why) {
          const bool was_up = std::exchange(up_, false);
          const Status reason = why.ok() ? Status(Code::kUnavailable, "it closed the connection") : why;
          connection_.reset();
          if (heard_) pause_us_ = 0;  // at once, for it worked until now
          Later(reason);
          if (was_up) callbacks_.on_down(reason);
        });
    if (const Status status = connection_->Start(); !status.ok()) {
      connection_.reset();
      return Later(status);
    }
    up_ = true;
    heard_ = false;
    connection_->Send(hello_());
    callbacks_.on_up();
  });
}

void ChainLink::Hurry() {
  if (timer_ == 0) return;
  loop_.Cancel(std::exchange(timer_, 0));
  pause_us_ = 0;
  Dial();
}

void ChainLink::Later(const Status& why) {
  trouble_ = why;
  timer_ = loop_.After(pause_us_, [this] {
    timer_ = 0;
    Dial();
  });
  pause_us_ = std::clamp(pause_us_ * 2, kFirstPause, kLongestPause);
}

wire::ControlClient::Connect ConnectTo(base::Loop& loop, const std::string& address,
                                       const std::shared_ptr<wire::Secrets>& secrets) {
  if (address.starts_with("@")) return wire::ConnectLocally(address);
  if (!secrets) {
    return [address](const wire::ControlClient::Connected& done) {
      done(Status(Code::kInvalid, Cat("cannot connect to ", address,
                                      ": this member has no token of the cluster; start it with --listen, too")));
    };
  }
  return wire::ConnectOverTcp(loop, address, secrets);
}

}  // namespace manta::control
