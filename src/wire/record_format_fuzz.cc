// What a peer sends under the keys of a bulk transfer: a header, and what is inside once it is decrypted. A peer is a
// member of the cluster, but may be broken.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "wire/tls/record_format.h"

using namespace manta::wire::tls;  // NOLINT(google-build-using-namespace)

namespace {

void Want(bool held) {
  if (!held) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size >= kRecordHeader) {
    Alert alert{};
    const std::size_t whole = RecordSize(bytes.first<kRecordHeader>(), &alert);
    Want(whole == 0 || (whole >= kRecordExtra && whole <= kRecordContent + kRecordExtra));
    // However it is cut into pieces, the same records are counted.
    RecordCounter at_once;
    at_once.Add(bytes);
    RecordCounter pieces;
    for (std::size_t at = 0, piece = 1; at < size; at += piece, piece = piece % 7 + 1) {
      pieces.Add(bytes.subspan(at, std::min(piece, size - at)));
    }
    Want(at_once.count() == pieces.count() && at_once.between() == pieces.between());
  }
  if (size == 0) return 0;
  const std::vector<std::byte> content(bytes.begin(), bytes.end() - 1);
  const Inner inner = WithoutPadding(content, bytes.back());
  if (!inner.ok) {
    Want(std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
    return 0;
  }
  Want(inner.size <= content.size() && inner.type != ContentType{});
  if (inner.type == ContentType::kData) return 0;
  const ControlRecord record = ReadControl(inner.type, std::span(content).first(inner.size));
  const bool update = record.control == Control::kKeyUpdate || record.control == Control::kKeyUpdateWanted;
  Want(!update || (inner.type == ContentType::kHandshake && inner.size == 5));
  Want(record.control != Control::kClosed || (inner.type == ContentType::kAlert && inner.size == 2));
  return 0;
}
