// A lineage ring without an owner's arena, for tests.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lineage/file.h"
#include "lineage/record.h"

namespace manta::lineage {

class TestRing {
 public:
  TestRing() : memory_(static_cast<shm::LineageMemory*>(aligned_alloc(4096, sizeof(shm::LineageMemory)))) {
    std::memset(static_cast<void*>(memory_), 0, sizeof *memory_);
    reader_ = shm::LineageReader(memory_);
  }
  ~TestRing() { free(memory_); }
  TestRing(const TestRing&) = delete;
  TestRing& operator=(const TestRing&) = delete;

  [[nodiscard]] shm::LineageMemory* memory() { return memory_; }
  // All that is there.
  void Decode(Sink& sink) {
    for (;;) {
      const shm::LineagePiece piece = reader_.Next();
      if (piece.size() == 0) return;
      std::vector<std::byte> bytes(piece.parts[0].begin(), piece.parts[0].end());
      bytes.insert(bytes.end(), piece.parts[1].begin(), piece.parts[1].end());
      const Status read = decoder_.Read(bytes, piece.chapter || piece.position == 0, sink);
      if (!read.ok() || decoder_.lost()) abort();
      reader_.Taken(piece);
    }
  }
  bool WriteTo(FileWriter& file, ProcessId owner) {
    for (;;) {
      const shm::LineagePiece piece = reader_.Next();
      if (piece.size() == 0) return true;
      if (!file.Append(owner, piece).ok()) return false;
      reader_.Taken(piece);
    }
  }

 private:
  shm::LineageMemory* memory_;
  shm::LineageReader reader_;
  Decoder decoder_;
};

inline std::vector<std::byte> RandomBytes(std::mt19937_64& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline shm::SpecHeader HeaderOf(std::uint64_t which) {
  shm::SpecHeader header;
  header.module = 77;
  header.trampoline = static_cast<std::uint32_t>(1000 + which);
  header.target = 5000 + which;
  return header;
}

class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/manta_lineage_XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace manta::lineage
