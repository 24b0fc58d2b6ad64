#include "lineage/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "shm/mapping.h"

namespace manta::lineage {
namespace {

constexpr std::uint32_t kMostBlock = shm::kLineageRing;

std::uint64_t HeaderSum(const BlockHeader& header, std::uint64_t offset) {
  BlockHeader plain = header;
  plain.checksum = 0;
  return Checksum(std::as_bytes(std::span(&plain, 1)), offset);
}

std::uint64_t FileSum(const FileHeader& header) {
  FileHeader plain = header;
  plain.checksum = 0;
  return Checksum(std::as_bytes(std::span(&plain, 1)), 0);
}

// A block at `offset` of the file, which is at most to its end; 0: there is no valid one. Else its whole length.
std::uint64_t BlockAt(std::span<const std::byte> file, std::uint64_t offset, BlockHeader* header) {
  if (file.size() - offset < sizeof *header) return 0;
  std::memcpy(header, file.data() + offset, sizeof *header);
  if (header->magic != BlockHeader::kMagic || header->bytes > kMostBlock) return 0;
  if (file.size() - offset - sizeof *header < header->bytes) return 0;
  const std::span<const std::byte> body = file.subspan(offset + sizeof *header, header->bytes);
  if (Checksum(body, HeaderSum(*header, offset)) != header->checksum) return 0;
  return shm::Padded(sizeof *header + header->bytes);
}

}  // namespace

std::uint64_t Checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  // Two independent sums: the multiplications of one word need not wait for those of the word before.
  std::uint64_t a = Mix(seed ^ 0x6c696e65616765ULL);
  std::uint64_t b = ~a;
  std::size_t i = 0;
  const auto word = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  for (; i + 16 <= bytes.size(); i += 16) {
    a = std::rotl((a ^ word(i, 8)) * 0x9e3779b97f4a7c15ULL, 31);
    b = std::rotl((b ^ word(i + 8, 8)) * 0xd1342543de82ef95ULL, 31);
  }
  for (; i < bytes.size(); i += 8) {
    a = std::rotl((a ^ word(i, std::min<std::size_t>(8, bytes.size() - i))) * 0x9e3779b97f4a7c15ULL, 31);
  }
  return Mix(a ^ Mix(b ^ bytes.size()));
}

// ---- writing ----

Result<FileWriter> FileWriter::Create(const std::string& path, const Id& job, std::uint64_t program) {
  FileWriter writer;
  writer.fd_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!writer.fd_.valid()) return Status(Code::kIo, Cat("cannot make ", path, ": ", std::strerror(errno)));
  FileHeader header;
  header.job = job;
  header.program = program;
  header.checksum = FileSum(header);
  if (pwrite(writer.fd_.get(), &header, sizeof header, 0) != sizeof header) {
    return Status(Code::kIo, Cat("cannot write ", path, ": ", std::strerror(errno)));
  }
  writer.size_ = sizeof header;
  return writer;
}

Status FileWriter::Append(ProcessId owner, const shm::LineagePiece& piece) {
  BlockHeader header;
  // Others may have begun since the first, of which only the last is known.
  header.flags = piece.chapter || piece.position == 0 ? BlockHeader::kChapter : 0;
  header.bytes = static_cast<std::uint32_t>(piece.size());
  header.owner = owner;
  header.position = piece.position;
  // The sum is over both parts at once: around the ring's end they are copied together.
  std::vector<std::byte> joined;
  std::span<const std::byte> body = piece.parts[0];
  if (!piece.parts[1].empty()) {
    joined.assign(piece.parts[0].begin(), piece.parts[0].end());
    joined.insert(joined.end(), piece.parts[1].begin(), piece.parts[1].end());
    body = joined;
  }
  header.checksum = Checksum(body, HeaderSum(header, size_));
  static constexpr std::byte kZeros[8] = {};
  const std::uint64_t whole = shm::Padded(sizeof header + body.size());
  iovec parts[3] = {{&header, sizeof header},
                    {const_cast<std::byte*>(body.data()), body.size()},
                    {const_cast<std::byte*>(kZeros), whole - sizeof header - body.size()}};
  const ssize_t written = pwritev(fd_.get(), parts, 3, static_cast<off_t>(size_));
  if (written == static_cast<ssize_t>(whole)) {
    size_ += whole;
    return {};
  }
  const int error = written < 0 ? errno : ENOSPC;
  // What is half there goes: a later block may be shorter.
  if (ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) return Status(Code::kIo, std::strerror(errno));
  return Status(error == ENOSPC || error == EDQUOT ? Code::kOutOfMemory : Code::kIo, std::strerror(error));
}

// ---- reading ----

Result<FileSummary> ReadFile(const std::string& path, BlockSink& sink, FileHeader* begun) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return Status(Code::kIo, Cat("cannot read ", path, ": ", std::strerror(errno)));
  }
  FileSummary summary;
  summary.bytes = static_cast<std::uint64_t>(info.st_size);
  FileHeader header;
  if (summary.bytes < sizeof header) return Status(Code::kCorrupt, Cat(path, " is cut off at its very beginning"));
  Result<shm::Mapping> map = shm::Mapping::Of(fd.get(), 0, summary.bytes, false);
  if (!map.ok()) return map.status();
  const std::span<const std::byte> file(map->data(), summary.bytes);
  std::memcpy(&header, file.data(), sizeof header);
  if (header.magic != FileHeader::kMagic || header.checksum != FileSum(header)) {
    return Status(Code::kCorrupt, Cat(path, " is no file of lineage, or its beginning is damaged"));
  }
  summary.job = header.job;
  summary.program = header.program;
  if (begun != nullptr) *begun = header;
  struct Stream {
    Decoder decoder;
    std::uint64_t next = 0;
  };
  std::map<ProcessId, Stream> streams;
  std::uint64_t offset = sizeof header;
  while (offset < file.size()) {
    BlockHeader block;
    std::uint64_t length = BlockAt(file, offset, &block);
    if (length == 0) {
      std::uint64_t next = offset + 8;
      while (next < file.size() && (length = BlockAt(file, next, &block)) == 0) next += 8;
      if (next >= file.size()) {
        summary.torn = file.size() - offset;
        return summary;
      }
      summary.damages.push_back({path, offset, next - offset});
      offset = next;
    }
    Stream& stream = streams[block.owner];
    if (stream.next != block.position) stream.decoder.Lose();
    stream.next = block.position + block.bytes;
    ++summary.blocks;
    sink.OnBlock(block.owner);
    const Status read = stream.decoder.Read(file.subspan(offset + sizeof block, block.bytes),
                                            (block.flags & BlockHeader::kChapter) != 0, sink);
    if (!read.ok()) {
      summary.damages.push_back({path, offset, length});
    } else if (stream.decoder.lost()) {
      ++summary.lost_pieces;
    }
    offset += length;
  }
  return summary;
}

}  // namespace manta::lineage
