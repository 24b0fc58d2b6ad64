// Encryption of TLS 1.3 records (RFC 8446, section 5) under the keys that the handshake agreed on, for bulk transfers
// of objects (BulkRecords in session.cc). Everything else is left to OpenSSL.
//
// Why not OpenSSL's own: it copies every byte twice more at either end, which costs as much as the encryption, and its
// AES-GCM of 3.0 does not know the wide instructions of newer processors (doc/security.md has the figures). Here bytes
// are encrypted from the caller's memory into what is sent, and decrypted into the caller's memory, by libipsec-mb with
// VAES. Without these the gain is less than the half that justifies a second implementation: see BulkRecordsPay.
// The same by OpenSSL's libcrypto is for tests, which compare the two.
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
#include "wire/tls/record_format.h"

namespace manta::wire::tls {

// Whether this build and this processor have what makes our own records worth it.
[[nodiscard]] bool BulkRecordsPay();

// The keys of one direction. One thread at a time.
class RecordKeys {
 public:
  // So many records are safe under one key: a few less than the 2^24.5 of RFC 8446, 5.5. Writers change keys then.
  static constexpr std::uint64_t kMostRecords = 1ULL << 24;
  // Readers take a few more, up to that limit, and nothing beyond.
  static constexpr std::uint64_t kMostRead = 23'726'566;

  // `wide` false: by OpenSSL alone, whatever there is; for tests that compare.
  explicit RecordKeys(bool wide = true);
  ~RecordKeys();
  RecordKeys(const RecordKeys&) = delete;
  RecordKeys& operator=(const RecordKeys&) = delete;

  // The traffic secret of the handshake, under which so many records went by already.
  void Set(const Digest& secret, std::uint64_t sequence = 0);
  // The next ones, after a key update.
  void Update();
  [[nodiscard]] bool worn() const { return sequence_ >= kMostRecords; }

  // Writes the record of this content, which has kRecordExtra bytes more; how many in all.
  std::size_t Seal(std::span<const std::byte> content, ContentType type, std::byte* out);
  // `record`: header and all, RecordSize bytes. Writes what was inside but for the last byte, which is *last:
  // kRecordExtra bytes less (see WithoutPadding). False: it is forged or broken, or the key is worn out; what was
  // written then is worth nothing.
  bool Open(std::span<const std::byte> record, std::byte* content, std::byte* last);

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
