#include "control/chain_config.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <span>

#include "base/fd.h"
#include "control/chain_wire.h"
#include "control/log_format.h"
#include "control/log_writer.h"

namespace manta::control {
namespace {

constexpr std::uint64_t kSeed = 0x6e69616863ULL;

}  // namespace

Result<std::string> ReadSmallFile(const std::string& path) {
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ENOENT) return Status(Code::kNotFound, Cat("there is no ", path));
    return DiskError(Cat("cannot open ", path), errno);
  }
  std::string bytes;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t count = read(file.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DiskError(Cat("cannot read ", path), errno);
    if (count == 0) return bytes;
    bytes.append(part.data(), static_cast<std::size_t>(count));
  }
}

Status WriteSmallFile(const std::string& path, const std::string& bytes) {
  const std::string next = path + ".next";
  const base::Fd file(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return DiskError(Cat("cannot open ", next), errno, path.substr(0, path.rfind('/')));
  if (write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      fdatasync(file.get()) != 0) {
    return DiskError(Cat("cannot write ", next), errno, path.substr(0, path.rfind('/')));
  }
  if (rename(next.c_str(), path.c_str()) != 0) return DiskError(Cat("cannot replace ", path), errno);
  return SyncFolder(path.substr(0, path.rfind('/')));
}

Result<SavedChain> DecodeChain(const std::string& bytes, const std::string& where) {
  const auto damaged = [&where] {
    return Status(Code::kCorrupt, Cat(where,
                                      " is damaged: restore it from a copy; without it nobody knows which "
                                      "members have everything"));
  };
  if (bytes.size() < sizeof(std::uint64_t)) return damaged();
  const std::string body = bytes.substr(sizeof(std::uint64_t));
  const std::uint64_t checksum = Checksum(std::as_bytes(std::span(body)), kSeed);
  if (bytes.substr(0, sizeof checksum) != std::string(reinterpret_cast<const char*>(&checksum), sizeof checksum)) {
    return damaged();
  }
  Result<SavedChain> chain = FromBytes<SavedChain>(body);
  if (!chain.ok() || chain->version != 1) return damaged();
  return chain;
}

std::string EncodeChain(const SavedChain& chain) {
  const std::string body = ToBytes(chain);
  const std::uint64_t checksum = Checksum(std::as_bytes(std::span(body)), kSeed);
  return std::string(reinterpret_cast<const char*>(&checksum), sizeof checksum) + body;
}

Result<SavedChain> LoadChain(const std::string& path) {
  const Result<std::string> bytes = ReadSmallFile(path);
  if (!bytes.ok()) return bytes.status();
  return DecodeChain(bytes.value(), path);
}

Status SaveChain(const std::string& path, const SavedChain& chain) { return WriteSmallFile(path, EncodeChain(chain)); }

}  // namespace manta::control
