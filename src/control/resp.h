// RESP2, the protocol of Redis: commands out, replies in. Pure: no sockets.
//
// The parser trusts nothing: what is no reply, or a length past the limits, is a Status, and the connection is to be
// closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "types/status.h"

namespace manta::control {

struct RespReply {
  enum class Type { kNull, kText, kError, kNumber, kBytes, kArray };
  Type type = Type::kNull;
  std::string text;  // of kText, kError, kBytes
  std::int64_t number = 0;
  std::vector<RespReply> items;

  [[nodiscard]] bool is_error() const { return type == Type::kError; }
  [[nodiscard]] bool is_null() const { return type == Type::kNull; }
};

void AppendCommand(std::string* out, std::initializer_list<std::string_view> words);
void AppendCommand(std::string* out, std::span<const std::string> words);

class RespParser {
 public:
  static constexpr std::size_t kMaxBytes = 256U << 20;  // of one string
  static constexpr std::size_t kMaxItems = 1U << 20;    // of one array
  static constexpr std::size_t kMaxLine = 64U << 10;
  static constexpr int kMaxDepth = 8;

  void Add(std::span<const std::byte> bytes);
  // Takes the next whole reply. false: more bytes are needed.
  Result<bool> Next(RespReply* reply);

 private:
  Result<bool> Parse(std::size_t* at, RespReply* reply, int depth);
  // The line at *at without its end; false: it is not there yet.
  Result<bool> Line(std::size_t* at, std::string_view* line) const;

  std::string buffer_;
  std::size_t start_ = 0;
  std::size_t need_ = 0;  // bytes from start_ without which there is no use in trying again
};

}  // namespace manta::control
