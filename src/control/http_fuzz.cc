// Answers of a hostile etcd, in pieces of any size: each is an answer or a Status, the pieces make no difference, and
// what is in it is JSON or not.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "control/http_call.h"
#include "control/json.h"

namespace {

std::string ReadIn(std::string_view input, std::size_t piece) {
  manta::control::HttpReply reply;
  for (std::size_t at = 0; at < input.size(); at += piece) {
    if (!reply.Add(input.substr(at, piece)).ok()) return "!";
  }
  if (!reply.End().ok()) return "!";
  return std::to_string(reply.status()) + reply.body();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 20000) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (ReadIn(input, input.size()) != ReadIn(input, data[0] % 32U + 1)) __builtin_trap();
  const manta::Result<manta::control::Json> json = manta::control::Json::Parse(input);
  if (json.ok() && json.value()["a"][std::size_t{0}].Number() == 1) return 0;
  return 0;
}
