// Replies of a hostile Redis, in pieces of any size: each is a reply or a Status, and the pieces make no difference.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "control/resp.h"

namespace {

std::string Describe(const manta::control::RespReply& reply) {
  std::string text = std::to_string(static_cast<int>(reply.type)) + reply.text + std::to_string(reply.number) + "[";
  for (const auto& item : reply.items) text += Describe(item);
  return text + "]";
}

std::string ReadIn(std::span<const std::byte> input, std::size_t piece) {
  manta::control::RespParser parser;
  std::string text;
  for (std::size_t at = 0; at < input.size(); at += piece) {
    parser.Add(input.subspan(at, std::min(piece, input.size() - at)));
    manta::control::RespReply reply;
    for (;;) {
      manta::Result<bool> next = parser.Next(&reply);
      if (!next.ok()) return text + "!";
      if (!*next) break;
      text += Describe(reply);
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 20000) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size)).subspan(1);
  if (ReadIn(input, input.size()) != ReadIn(input, data[0] % 32U + 1)) __builtin_trap();
  return 0;
}
