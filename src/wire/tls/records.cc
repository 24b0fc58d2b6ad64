#include "wire/tls/records.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <cstdlib>
#include <cstring>

#if defined(MANTA_IPSEC_MB)
#include <intel-ipsec-mb.h>
#endif

namespace manta::wire::tls {
namespace {

constexpr std::size_t kTag = 16;

// HKDF-Expand-Label of RFC 8446, 7.1, with an empty context and up to 32 bytes.
template <std::size_t kSize>
void ExpandLabel(const Digest& secret, std::string_view label, std::array<unsigned char, kSize>* out) {
  static_assert(kSize <= 32);
  std::string info;
  info += '\0';
  info += static_cast<char>(kSize);
  info += static_cast<char>(label.size() + 6);
  info += "tls13 ";
  info += label;
  info += '\0';
  info += '\1';  // the first and only block of the expansion
  std::array<unsigned char, 32> block{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(info.data()), info.size(), block.data(), &size) == nullptr) {
    std::abort();  // out of memory
  }
  std::memcpy(out->data(), block.data(), kSize);
  OPENSSL_cleanse(block.data(), block.size());
}

unsigned char* Bytes(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Bytes(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

#if defined(MANTA_IPSEC_MB)
// One for all threads: its functions have no state of their own. Null: this processor has nothing that it could use
// better than OpenSSL does.
IMB_MGR* Manager() {
  static IMB_MGR* const manager = []() -> IMB_MGR* {
    IMB_MGR* const made = alloc_mb_mgr(0);
    if (made == nullptr) return nullptr;
    constexpr std::uint64_t kWide = IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;
    if ((made->features & kWide) == kWide) {
      init_mb_mgr_auto(made, nullptr);
      if (imb_get_errno(made) == 0) return made;
    }
    free_mb_mgr(made);
    return nullptr;
  }();
  return manager;
}
#endif

}  // namespace

#if defined(MANTA_IPSEC_MB)
struct RecordKeys::Wide {
  gcm_key_data key{};
  gcm_context_data context{};
};
#else
struct RecordKeys::Wide {};
#endif

bool BulkRecordsPay() {
#if defined(MANTA_IPSEC_MB)
  return Manager() != nullptr;
#else
  return false;
#endif
}

RecordKeys::RecordKeys([[maybe_unused]] bool wide) : cipher_(EVP_CIPHER_CTX_new()) {
  if (!cipher_) std::abort();
#if defined(MANTA_IPSEC_MB)
  if (wide && Manager() != nullptr) wide_ = std::make_unique<Wide>();
#endif
}

RecordKeys::~RecordKeys() {
  OPENSSL_cleanse(secret_.data(), secret_.size());
  OPENSSL_cleanse(iv_.data(), iv_.size());
  if (wide_) OPENSSL_cleanse(wide_.get(), sizeof *wide_);
}

void RecordKeys::Set(const Digest& secret, std::uint64_t sequence) {
  secret_ = secret;
  Derive();
  sequence_ = sequence;
}

void RecordKeys::Update() {
  std::array<unsigned char, 32> next{};
  ExpandLabel(secret_, "traffic upd", &next);
  std::memcpy(secret_.data(), next.data(), next.size());
  OPENSSL_cleanse(next.data(), next.size());
  Derive();
}

void RecordKeys::Derive() {
  std::array<unsigned char, 16> key{};
  ExpandLabel(secret_, "key", &key);
  ExpandLabel(secret_, "iv", &iv_);
  sequence_ = 0;
#if defined(MANTA_IPSEC_MB)
  if (wide_) IMB_AES128_GCM_PRE(Manager(), key.data(), &wide_->key);
#endif
  // Also where it is not used: the two take turns in nothing.
  if (EVP_CipherInit_ex(cipher_.get(), EVP_aes_128_gcm(), nullptr, key.data(), nullptr, 1) != 1) std::abort();
  OPENSSL_cleanse(key.data(), key.size());
}

std::array<unsigned char, 12> RecordKeys::NextNonce() {
  std::array<unsigned char, 12> nonce = iv_;
  for (int i = 0; i < 8; ++i) nonce[11 - i] ^= static_cast<unsigned char>(sequence_ >> (8 * i));
  ++sequence_;
  return nonce;
}

std::size_t RecordKeys::Seal(std::span<const std::byte> content, ContentType type, std::byte* out) {
  const std::array<unsigned char, 12> nonce = NextNonce();
  const std::size_t body = content.size() + 1 + kTag;
  unsigned char* const header = Bytes(out);
  header[0] = static_cast<unsigned char>(ContentType::kData);
  header[1] = header[2] = 3;  // as TLS 1.2 looked
  header[3] = static_cast<unsigned char>(body >> 8);
  header[4] = static_cast<unsigned char>(body);
  unsigned char* const hidden = header + kRecordHeader;
  const auto type_byte = static_cast<unsigned char>(type);
#if defined(MANTA_IPSEC_MB)
  if (wide_) {
    IMB_MGR* const manager = Manager();
    IMB_AES128_GCM_INIT(manager, &wide_->key, &wide_->context, nonce.data(), header, kRecordHeader);
    IMB_AES128_GCM_ENC_UPDATE(manager, &wide_->key, &wide_->context, hidden, Bytes(content.data()), content.size());
    IMB_AES128_GCM_ENC_UPDATE(manager, &wide_->key, &wide_->context, hidden + content.size(), &type_byte, 1);
    IMB_AES128_GCM_ENC_FINALIZE(manager, &wide_->key, &wide_->context, hidden + content.size() + 1, kTag);
    return kRecordHeader + body;
  }
#endif
  EVP_CIPHER_CTX* const cipher = cipher_.get();
  int size = 0;
  const bool ok =
      EVP_EncryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
      EVP_EncryptUpdate(cipher, nullptr, &size, header, kRecordHeader) == 1 &&
      EVP_EncryptUpdate(cipher, hidden, &size, Bytes(content.data()), static_cast<int>(content.size())) == 1 &&
      EVP_EncryptUpdate(cipher, hidden + content.size(), &size, &type_byte, 1) == 1 &&
      EVP_EncryptFinal_ex(cipher, hidden + content.size() + 1, &size) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, kTag, hidden + content.size() + 1) == 1;
  if (!ok) std::abort();  // sizes are ours; nothing else can go wrong
  return kRecordHeader + body;
}

bool RecordKeys::Open(std::span<const std::byte> record, std::byte* content, std::byte* last) {
  if (record.size() < kRecordExtra || sequence_ >= kMostRead) return false;
  const std::array<unsigned char, 12> nonce = NextNonce();
  const std::size_t size = record.size() - kRecordExtra;
  const unsigned char* const header = Bytes(record.data());
  const unsigned char* const hidden = header + kRecordHeader;
  const unsigned char* const tag = hidden + size + 1;
  unsigned char type_byte = 0;
  bool good = false;
#if defined(MANTA_IPSEC_MB)
  if (wide_) {
    IMB_MGR* const manager = Manager();
    unsigned char expected[kTag];
    IMB_AES128_GCM_INIT(manager, &wide_->key, &wide_->context, nonce.data(), header, kRecordHeader);
    IMB_AES128_GCM_DEC_UPDATE(manager, &wide_->key, &wide_->context, Bytes(content), hidden, size);
    IMB_AES128_GCM_DEC_UPDATE(manager, &wide_->key, &wide_->context, &type_byte, hidden + size, 1);
    IMB_AES128_GCM_DEC_FINALIZE(manager, &wide_->key, &wide_->context, expected, kTag);
    good = CRYPTO_memcmp(expected, tag, kTag) == 0;
    *last = static_cast<std::byte>(type_byte);
    return good;
  }
#endif
  EVP_CIPHER_CTX* const cipher = cipher_.get();
  int count = 0;
  unsigned char none[kTag];
  good = EVP_DecryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
         EVP_DecryptUpdate(cipher, nullptr, &count, header, kRecordHeader) == 1 &&
         EVP_DecryptUpdate(cipher, Bytes(content), &count, hidden, static_cast<int>(size)) == 1 &&
         EVP_DecryptUpdate(cipher, &type_byte, &count, hidden + size, 1) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, kTag, const_cast<unsigned char*>(tag)) == 1 &&
         EVP_DecryptFinal_ex(cipher, none, &count) == 1;
  if (!good) ERR_clear_error();
  *last = static_cast<std::byte>(type_byte);
  return good;
}

}  // namespace manta::wire::tls
