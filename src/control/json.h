// Json is a value in that notation, as servers with an HTTP interface give it (etcd): only for reading.
//
// What is asked for and not there is a null, so that a path can be followed and looked at once at its end. Depth and
// size are limited: it comes from a server, which may be anybody's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "types/status.h"

namespace manta::control {

struct Json {
  enum class Kind : std::uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  static constexpr int kMaxDepth = 32;

  Kind kind = Kind::kNull;
  bool truth = false;
  std::string text;                // of a string, or a number as it was written
  std::vector<Json> items;         // of an array, or the values of an object's fields …
  std::vector<std::string> names;  // … with these names

  // kCorrupt: it is none.
  static Result<Json> Parse(std::string_view text);

  [[nodiscard]] bool null() const { return kind == Kind::kNull; }
  [[nodiscard]] const Json& operator[](std::string_view name) const;
  [[nodiscard]] const Json& operator[](std::size_t index) const;
  // Also of a string: large numbers are sent as such. 0: it is none.
  [[nodiscard]] std::int64_t Number() const;
};

}  // namespace manta::control
