// The three archives that walk a value: SizeCounter (how many bytes), Writer (into memory) and Reader
// (out of memory that may say anything). Each is also what a user's Serialize(archive) gets.
//
// Invariants: (1) SizeCounter and Writer are at the same position() after the same calls.
//             (2) Reader never touches a byte outside its span, whatever the bytes say.
//             (3) every value takes at least one byte, so a count is never more than the bytes left.
// One thread per archive.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "manta/array.h"
#include "manta/errors.h"
#include "manta/internal/copy.h"

namespace manta {

class Reader;

static_assert(std::endian::native == std::endian::little, "Manta's encoding is the memory of little-endian machines");

namespace internal {

// Runs of plain values from kAlignFrom bytes on start at a multiple of kAlignTo from the blob's start.
inline constexpr std::size_t kAlignFrom = 256;
inline constexpr std::size_t kAlignTo = 64;
// Containers and pointers inside each other.
inline constexpr std::size_t kMaxDepth = 1000;
// A thread usually has 8 MB. kMaxDepth ends the recursion first, except for classes with large arrays in them
// and under sanitizers, whose frames are ten times as large.
inline constexpr std::intptr_t kMaxStack = std::intptr_t{4} << 20;

// How deep an archive is inside the value, in levels and in bytes of stack.
class Depth {
 public:
  // false: too deep.
  [[nodiscard]] bool Enter() {
    const auto here = reinterpret_cast<std::intptr_t>(__builtin_frame_address(0));
    if (level_++ == 0) start_ = here;
    return level_ <= kMaxDepth && start_ - here <= kMaxStack;  // inlining may make it negative
  }
  void Leave() { --level_; }

 private:
  std::size_t level_ = 0;
  std::intptr_t start_ = 0;
};

[[nodiscard]] constexpr std::size_t AlignUp(std::size_t position) {
  return (position + kAlignTo - 1) & ~(kAlignTo - 1);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void ThrowTooDeep() {
  throw InvalidError("cannot send a value nested more than " + std::to_string(kMaxDepth) +
                     " levels or 4 MiB of stack deep (or one that contains itself); send long chains as a std::vector");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void ThrowResized(std::size_t size) {
  throw InvalidError("a value changed while it was being encoded: it no longer has " + std::to_string(size) +
                     " bytes; do not change a value (from another thread) while it is being sent");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void ThrowCorrupt(const std::string& what, std::size_t at,
                                                                std::size_t size) {
  throw CorruptError("cannot decode: " + what + " at byte " + std::to_string(at) + " of " + std::to_string(size));
}

// The rules in manta/codec.h, "what is sent how"; defined in internal/dispatch.h.
template <typename Archive, typename T>
void WriteValue(Archive& archive, const T& value);
template <typename T>
T ReadValue(Reader& reader);
template <typename T>
void ReadInto(Reader& reader, T& value);

}  // namespace internal

class SizeCounter {
 public:
  static constexpr bool kReading = false;
  static constexpr bool kCounting = true;

  template <typename... Ts>
  SizeCounter& operator()(const Ts&... values) {
    (internal::WriteValue(*this, values), ...);
    return *this;
  }

  void Bytes(const void*, std::size_t n) { position_ += n; }
  void Align() { position_ = internal::AlignUp(position_); }
  [[nodiscard]] std::size_t position() const { return position_; }

  void Enter() {
    if (!depth_.Enter()) internal::ThrowTooDeep();
  }
  void Leave() { depth_.Leave(); }

 private:
  std::size_t position_ = 0;
  internal::Depth depth_;
};

class Writer {
 public:
  static constexpr bool kReading = false;
  static constexpr bool kCounting = false;

  explicit Writer(std::span<std::byte> out) : begin_(out.data()), cursor_(begin_), end_(begin_ + out.size()) {}

  template <typename... Ts>
  Writer& operator()(const Ts&... values) {
    (internal::WriteValue(*this, values), ...);
    return *this;
  }

  void Bytes(const void* from, std::size_t n) {
    std::byte* to = Claim(n);
    if (n >= internal::kCopyLargeFrom) {
      internal::CopyLarge(to, static_cast<const std::byte*>(from), n);
    } else if (n != 0) {
      std::memcpy(to, from, n);
    }
  }
  // The next n bytes, for the caller to fill.
  [[nodiscard]] std::byte* Claim(std::size_t n) {
    if (n > left()) internal::ThrowResized(size());
    std::byte* at = cursor_;
    cursor_ += n;
    return at;
  }
  void Align() {
    const std::size_t padding = internal::AlignUp(position()) - position();
    if (padding > left()) internal::ThrowResized(size());
    if (padding != 0) std::memset(cursor_, 0, padding);
    cursor_ += padding;
  }
  [[nodiscard]] std::size_t position() const { return static_cast<std::size_t>(cursor_ - begin_); }
  void ExpectEnd() const {
    if (cursor_ != end_) internal::ThrowResized(size());
  }

  void Enter() {
    if (!depth_.Enter()) internal::ThrowTooDeep();
  }
  void Leave() { depth_.Leave(); }

 private:
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - cursor_); }

  std::byte* begin_;
  std::byte* cursor_;
  std::byte* end_;
  internal::Depth depth_;
};

class Reader {
 public:
  static constexpr bool kReading = true;
  static constexpr bool kCounting = false;

  // `keep`, unless null or empty, keeps `bytes` alive and unchanged: then runs are looked at in place.
  // `copies`, unless null, takes over what had to be copied for a std::span after all.
  explicit Reader(std::span<const std::byte> bytes, const KeepAlive* keep = nullptr,
                  std::vector<KeepAlive>* copies = nullptr)
      : begin_(bytes.data()), cursor_(begin_), end_(begin_ + bytes.size()), keep_(keep), copies_(copies) {}

  template <typename... Ts>
  Reader& operator()(Ts&... values) {
    (internal::ReadInto(*this, values), ...);
    return *this;
  }
  template <typename T>
  [[nodiscard]] T Read() {
    return internal::ReadValue<T>(*this);
  }

  void Bytes(void* to, std::size_t n) {
    const std::byte* from = Take(n);
    if (n != 0) std::memcpy(to, from, n);
  }
  // The next n bytes, in place.
  [[nodiscard]] const std::byte* Take(std::size_t n) {
    if (n > left()) Fail("bytes are missing");
    const std::byte* at = cursor_;
    cursor_ += n;
    return at;
  }
  void Align() {
    const std::size_t padding = internal::AlignUp(position()) - position();
    if (padding > left()) Fail("padding is missing");
    cursor_ += padding;
  }
  // The number of elements that follow, each at least `least` bytes long.
  [[nodiscard]] std::size_t Count(std::size_t least) {
    std::uint64_t count = 0;
    Bytes(&count, sizeof count);
    if (count > left() / least) Fail("a count is larger than the bytes that follow");
    return static_cast<std::size_t>(count);
  }
  [[nodiscard]] std::size_t position() const { return static_cast<std::size_t>(cursor_ - begin_); }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - cursor_); }
  [[nodiscard]] const KeepAlive* keep() const { return keep_ != nullptr && *keep_ != nullptr ? keep_ : nullptr; }
  [[nodiscard]] std::vector<KeepAlive>* copies() const { return copies_; }
  void ExpectEnd() const {
    if (cursor_ != end_) Fail("unexpected bytes follow the value");
  }
  [[noreturn, gnu::cold, gnu::noinline]] void Fail(const char* what) const {
    internal::ThrowCorrupt(what, position(), static_cast<std::size_t>(end_ - begin_));
  }

  void Enter() {
    if (!depth_.Enter()) Fail("containers are nested too deep");
  }
  void Leave() { depth_.Leave(); }

 private:
  const std::byte* begin_;
  const std::byte* cursor_;
  const std::byte* end_;
  const KeepAlive* keep_;
  std::vector<KeepAlive>* copies_;
  internal::Depth depth_;
};

}  // namespace manta
