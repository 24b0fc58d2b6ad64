// The configuration of a chain as bytes, and on the disk of the front: a small file that is replaced by a rename,
// synced before and after, so that a reader finds the old one or the new one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/chain.h"
#include "types/status.h"

namespace manta::control {

struct SavedChain {
  std::uint32_t version = 1;
  Id chain;
  std::uint64_t openings = 0;  // of the front
  std::vector<std::string> addresses;
  rules::ChainConfig config;
};

// kNotFound: there is none.
[[nodiscard]] Result<SavedChain> LoadChain(const std::string& path);
[[nodiscard]] Status SaveChain(const std::string& path, const SavedChain& chain);

[[nodiscard]] std::string EncodeChain(const SavedChain& chain);
// kCorrupt, with `where` in the message.
[[nodiscard]] Result<SavedChain> DecodeChain(const std::string& bytes, const std::string& where);

// The whole file; kNotFound if there is none. Mode 0600.
[[nodiscard]] Result<std::string> ReadSmallFile(const std::string& path);
[[nodiscard]] Status WriteSmallFile(const std::string& path, const std::string& bytes);

}  // namespace manta::control
