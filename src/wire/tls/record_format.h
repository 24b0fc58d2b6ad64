// The form of TLS 1.3 records (RFC 8446, section 5) as our own reader of bulk transfers checks it: the header, what is
// inside after decryption, and the messages that are no data. Pure: bytes in, a verdict out. What it refuses it refuses
// with the alert that the RFC names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace manta::wire::tls {

inline constexpr std::size_t kRecordHeader = 5;
inline constexpr std::size_t kRecordContent = 16U << 10;         // bytes of one record, at most
inline constexpr std::size_t kRecordExtra = kRecordHeader + 17;  // header, the content's type, and the tag

enum class ContentType : std::uint8_t { kAlert = 21, kHandshake = 22, kData = 23 };

// Descriptions of alerts.
enum class Alert : std::uint8_t {
  kCloseNotify = 0,
  kUnexpectedMessage = 10,
  kBadRecordMac = 20,
  kRecordOverflow = 22,
  kIllegalParameter = 47,
  kDecodeError = 50,
  kUserCanceled = 90,
};

// How long the record is whose header this is, header included; 0: it is none, and *alert says why. A record of
// AES-GCM has kRecordExtra bytes more than its content, so the size of the content is known before it is decrypted.
[[nodiscard]] inline std::size_t RecordSize(std::span<const std::byte, kRecordHeader> header, Alert* alert) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(header[i]); };
  *alert = Alert::kUnexpectedMessage;
  if (byte(0) != static_cast<std::size_t>(ContentType::kData) || byte(1) != 3) return 0;
  const std::size_t size = kRecordHeader + (byte(3) << 8 | byte(4));
  *alert = Alert::kRecordOverflow;
  if (size > kRecordContent + kRecordExtra) return 0;
  *alert = Alert::kDecodeError;
  return size >= kRecordExtra ? size : 0;
}

// What was decrypted: content, type, and zeros that hide the length. `last` is its last byte, `before` all others.
struct Inner {
  bool ok = false;  // not: zeros alone (unexpected_message)
  ContentType type{};
  std::size_t size = 0;  // of the content
};
[[nodiscard]] inline Inner WithoutPadding(std::span<const std::byte> before, std::byte last) {
  if (last != std::byte{0}) return {true, static_cast<ContentType>(last), before.size()};
  std::size_t size = before.size();
  while (size > 0 && before[size - 1] == std::byte{0}) --size;
  if (size == 0) return {};
  return {true, static_cast<ContentType>(before[size - 1]), size - 1};
}

enum class Control : std::uint8_t {
  kClosed,           // the peer sends nothing more
  kAlert,            // it ended the connection: `alert`
  kNothing,          // to be passed over
  kKeyUpdate,        // its next record is under its next keys
  kKeyUpdateWanted,  // and it wants the same of us
  kWrong,            // to be answered with `alert`
};
struct ControlRecord {
  Control control = Control::kWrong;
  Alert alert = Alert::kUnexpectedMessage;
};
// Of a record whose type is not kData. Nothing is fragmented: alerts never may be, and a key update must end its
// record.
[[nodiscard]] inline ControlRecord ReadControl(ContentType type, std::span<const std::byte> content) {
  if (content.empty()) return {Control::kWrong, Alert::kUnexpectedMessage};
  if (type == ContentType::kAlert) {
    if (content.size() != 2) return {Control::kWrong, Alert::kDecodeError};
    const auto alert = static_cast<Alert>(content[1]);
    if (alert == Alert::kCloseNotify) return {Control::kClosed, alert};
    if (alert == Alert::kUserCanceled) return {Control::kNothing, alert};  // a close_notify follows
    return {Control::kAlert, alert};
  }
  constexpr std::byte kKeyUpdateType{24};
  if (type != ContentType::kHandshake || content[0] != kKeyUpdateType) {
    return {Control::kWrong, Alert::kUnexpectedMessage};
  }
  if (content.size() != 5 || content[1] != std::byte{0} || content[2] != std::byte{0} || content[3] != std::byte{1}) {
    return {Control::kWrong, Alert::kDecodeError};
  }
  if (content[4] == std::byte{0}) return {Control::kKeyUpdate, {}};
  if (content[4] == std::byte{1}) return {Control::kKeyUpdateWanted, {}};
  return {Control::kWrong, Alert::kIllegalParameter};
}

// Counts the records in a stream of bytes, which comes in pieces of any size.
class RecordCounter {
 public:
  void Add(std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size();) {
      if (header_ < kRecordHeader) {
        if (header_ >= 3) body_ = body_ << 8 | std::to_integer<std::size_t>(bytes[i]);
        ++header_;
        ++i;
      } else {
        const std::size_t some = body_ < bytes.size() - i ? body_ : bytes.size() - i;
        body_ -= some;
        i += some;
      }
      if (header_ < kRecordHeader || body_ > 0) continue;
      ++count_;
      header_ = 0;
    }
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }  // whole ones
  [[nodiscard]] bool between() const { return header_ == 0; }   // no record has begun and not ended
  void Restart() { *this = {}; }

 private:
  std::uint64_t count_ = 0;
  std::size_t header_ = 0;  // bytes of it
  std::size_t body_ = 0;    // bytes that are missing
};

}  // namespace manta::wire::tls
