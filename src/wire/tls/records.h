// Records of TLS 1.3 (RFC 8446, section 5) under the keys that the handshake agreed on: OpenSSL shakes hands, and from
// then on this is what is on the wire. What the kernel would do (kTLS), where it had it.
//
// Why not OpenSSL's own: it copies every byte twice more at either end, which costs as much as the encryption, and its
// AES-GCM of 3.0 does not know the wide instructions of newer processors (doc/security.md has the figures). Here bytes
// are encrypted from the caller's memory into what is sent, and decrypted into the caller's memory; by libipsec-mb
// where that was there at the build and the processor has VAES, else by OpenSSL's libcrypto. Both give the same bytes.
//
// AES-128-GCM with SHA-256 only; the context offers nothing else.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "wire/tls/openssl.h"

namespace manta::wire::tls {

inline constexpr std::size_t kRecordHeader = 5;
inline constexpr std::size_t kRecordContent = 16U << 10;         // bytes of one record, at most
inline constexpr std::size_t kRecordExtra = kRecordHeader + 17;  // header, the content's type, and the tag

enum class ContentType : std::uint8_t { kAlert = 21, kHandshake = 22, kData = 23 };

// The keys of one direction. One thread at a time.
class RecordKeys {
 public:
  // So many records are safe under one key: a few less than RFC 8446, 5.5 says.
  static constexpr std::uint64_t kMostRecords = 1ULL << 24;

  // `wide` false: by OpenSSL alone, whatever there is; for tests that compare.
  explicit RecordKeys(bool wide = true);
  ~RecordKeys();
  RecordKeys(const RecordKeys&) = delete;
  RecordKeys& operator=(const RecordKeys&) = delete;

  // The traffic secret of the handshake.
  void Set(const Digest& secret);
  // The next ones, after a key update.
  void Update();
  [[nodiscard]] bool worn() const { return sequence_ >= kMostRecords; }

  // Writes the record of this content, which has kRecordExtra bytes more; how many in all.
  std::size_t Seal(std::span<const std::byte> content, ContentType type, std::byte* out);
  // `record`: header and all. Writes its content, which has kRecordExtra bytes less. False: it is forged, or broken;
  // what was written then is worth nothing.
  bool Open(std::span<const std::byte> record, std::byte* content, ContentType* type);

 private:
  struct Wide;  // of libipsec-mb
  void Derive();
  [[nodiscard]] std::array<unsigned char, 12> NextNonce();

  Digest secret_{};
  std::array<unsigned char, 12> iv_{};
  std::uint64_t sequence_ = 0;
  Owned<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free> cipher_;
  std::unique_ptr<Wide> wide_;
};

}  // namespace manta::wire::tls
