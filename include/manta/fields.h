// MANTA_FIELDS(a, b) inside a class tells Manta which members make up its value. Plain aggregates
// need nothing; classes with private members or base classes name their fields this way.
#pragma once

#include <tuple>

// Members only; order is the order on the wire.
#define MANTA_FIELDS(...)                               \
  auto manta_fields() { return std::tie(__VA_ARGS__); } \
  auto manta_fields() const { return std::tie(__VA_ARGS__); }
