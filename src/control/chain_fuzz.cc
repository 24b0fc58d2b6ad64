// Messages of a chain from a hostile peer: whatever arrives decodes or is a Status, and a member that is given what
// decodes keeps its own order: what it stores has ascending positions.
#include <cstddef>
#include <cstdint>
#include <string>

#include "control/chain_config.h"
#include "control/chain_wire.h"
#include "rules/chain_member.h"

namespace {

using manta::control::ChainPacket;

void Try(manta::rules::ChainMember& member, const manta::rules::ChainMessage& message, std::uint64_t* last) {
  manta::rules::ChainActions actions;
  member.Receive(1'000, message, &actions);
  for (const manta::rules::ChainAction& action : actions) {
    if (std::holds_alternative<manta::rules::ChainWipe>(action)) *last = 0;
    const auto* store = std::get_if<manta::rules::ChainStore>(&action);
    if (store == nullptr) continue;
    if (store->record.position <= *last) __builtin_trap();
    *last = store->record.position;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  manta::wire::Frame frame;
  frame.body.assign(reinterpret_cast<const char*>(data), size);
  static_cast<void>(manta::control::FromBytes<manta::control::ChainRequest>(frame.body));
  static_cast<void>(manta::control::FromBytes<manta::control::ChainAnswer>(frame.body));
  static_cast<void>(manta::control::FromBytes<manta::control::SavedChain>(frame.body));
  frame.kind = manta::control::ChainHello::kKind;
  static_cast<void>(frame.As<manta::control::ChainHello>());
  frame.kind = ChainPacket::kKind;
  const manta::Result<ChainPacket> packet = frame.As<ChainPacket>();
  if (!packet.ok()) return 0;
  for (const bool tail : {false, true}) {
    manta::rules::ChainMember member(2, 1, manta::rules::ChainTimes{});
    manta::rules::ChainActions ignored;
    manta::rules::ChainConfig config{5, {1, 2, 3}, manta::rules::kNoMember, false};
    if (tail) config.members.pop_back();
    member.Receive(1'000, manta::rules::ChainConfigure{config, 1}, &ignored);
    std::uint64_t last = 0;
    Try(member, packet.value().message, &last);
    Try(member, packet.value().message, &last);
  }
  return 0;
}
