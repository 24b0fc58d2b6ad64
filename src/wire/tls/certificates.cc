// The cluster's authority and the certificates it gives out: EC P-256, no expiry (see wire/tls.h for why).
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/tls/openssl.h"

namespace manta::wire::tls {
namespace {

constexpr std::size_t kMaxHosts = 64;

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(std::max(size, 0L))};
}

Bio Memory(std::string_view text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

Result<std::string> CertificateText(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), certificate) != 1) return Failed("write a certificate");
  return TextOf(bio.get());
}

Result<std::string> KeyText(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_secmem()));
  if (!bio || PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("write a key");
  }
  return TextOf(bio.get());
}

bool SetName(X509_NAME* name, const std::string& text) {
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(std::min<std::size_t>(text.size(), 64)), -1, 0) == 1;
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// Version, a random serial number, and a life without end ("99991231235959Z" in RFC 5280).
bool SetBasics(X509* certificate) {
  const Owned<BIGNUM, BN_free> serial(BN_new());
  return X509_set_version(certificate, X509_VERSION_3) == 1 && serial &&
         BN_rand(serial.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr &&
         ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), "19700101000000Z") == 1 &&
         ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), "99991231235959Z") == 1;
}

bool IsP256(EVP_PKEY* key) {
  std::array<char, 32> group{};
  std::size_t size = 0;
  return key != nullptr && EVP_PKEY_is_a(key, "EC") == 1 &&
         EVP_PKEY_get_group_name(key, group.data(), group.size(), &size) == 1 &&
         std::strcmp(group.data(), "prime256v1") == 0;
}

bool IsHostName(const std::string& host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

Status AddHosts(X509* certificate, const std::vector<std::string>& hosts) {
  if (hosts.empty() || hosts.size() > kMaxHosts) {
    return Status(Code::kInvalid, Cat("a certificate for ", hosts.size(), " hosts; 1 to ", kMaxHosts, " are possible"));
  }
  const Names names(GENERAL_NAMES_new());
  if (!names) return Failed("make a certificate");
  for (const std::string& host : hosts) {
    std::array<unsigned char, 16> address{};
    int size = 0;
    if (inet_pton(AF_INET, host.c_str(), address.data()) == 1) size = 4;
    if (size == 0 && inet_pton(AF_INET6, host.c_str(), address.data()) == 1) size = 16;
    if (size == 0 && !IsHostName(host)) return Status(Code::kInvalid, "a certificate for what is no host name");
    ASN1_STRING* const value = size > 0 ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    GENERAL_NAME* const name = GENERAL_NAME_new();
    const void* const data = size > 0 ? static_cast<const void*>(address.data()) : host.data();
    if (value == nullptr || name == nullptr ||
        ASN1_STRING_set(value, data, size > 0 ? size : static_cast<int>(host.size())) != 1) {
      ASN1_STRING_free(value);
      GENERAL_NAME_free(name);
      return Failed("make a certificate");
    }
    GENERAL_NAME_set0_value(name, size > 0 ? GEN_IPADD : GEN_DNS, value);
    if (sk_GENERAL_NAME_push(names.get(), name) == 0) {
      GENERAL_NAME_free(name);
      return Failed("make a certificate");
    }
  }
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) != 1) return Failed("make a certificate");
  return {};
}

}  // namespace

std::string LastError() {
  std::string text;
  const char* data = nullptr;
  int flags = 0;
  while (const unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    const char* const reason = ERR_reason_error_string(code);
    if (!text.empty()) text += ", ";
    text += reason != nullptr ? reason : "unknown";
  }
  return text.empty() ? "no reason given" : text;
}

Status Failed(std::string_view what) { return Status(Code::kIo, Cat("cannot ", std::string(what), ": ", LastError())); }

Result<Certificate> ReadCertificate(const std::string& pem) {
  const Bio bio = Memory(pem);
  Certificate certificate(bio ? PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr) : nullptr);
  if (!certificate) return Status(Code::kCorrupt, Cat("not a certificate: ", LastError()));
  return certificate;
}

Result<Key> ReadKey(const std::string& pem) {
  const Bio bio = Memory(pem);
  // A password would be asked for at the terminal: there is none.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  Key key(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr) : nullptr);
  if (!key) return Status(Code::kCorrupt, Cat("not a private key: ", LastError()));
  return key;
}

Digest FingerprintOf(X509* certificate) {
  Digest digest{};
  unsigned size = 0;
  X509_digest(certificate, EVP_sha256(), reinterpret_cast<unsigned char*>(digest.data()), &size);
  return digest;
}

Result<KeyPair> MakeAuthority(const std::string& name) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  X509* const raw = certificate.get();
  if (!key || raw == nullptr || !SetBasics(raw) || !SetName(X509_get_subject_name(raw), name) ||
      X509_set_issuer_name(raw, X509_get_subject_name(raw)) != 1 || X509_set_pubkey(raw, key.get()) != 1 ||
      !AddExtension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(raw, raw, NID_subject_key_identifier, "hash") || X509_sign(raw, key.get(), EVP_sha256()) == 0) {
    return Failed("make the cluster's authority");
  }
  Result<std::string> certificate_text = CertificateText(raw);
  if (!certificate_text.ok()) return certificate_text.status();
  Result<std::string> key_text = KeyText(key.get());
  if (!key_text.ok()) return key_text.status();
  return KeyPair{std::move(*certificate_text), std::move(*key_text)};
}

Result<KeyPair> MakeRequest(const std::string& name) {
  const Key key(EVP_EC_gen("P-256"));
  const Request request(X509_REQ_new());
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!key || !request || !bio || !SetName(X509_REQ_get_subject_name(request.get()), name) ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return Failed("make a certificate request");
  }
  Result<std::string> key_text = KeyText(key.get());
  if (!key_text.ok()) return key_text.status();
  return KeyPair{TextOf(bio.get()), std::move(*key_text)};
}

Result<std::string> Sign(const KeyPair& authority, const std::string& request_pem,
                         const std::vector<std::string>& hosts) {
  Result<Certificate> issuer = ReadCertificate(authority.certificate);
  if (!issuer.ok()) return issuer.status();
  Result<Key> issuer_key = ReadKey(authority.key);
  if (!issuer_key.ok()) return issuer_key.status();
  const Bio bio = Memory(request_pem);
  const Request request(bio ? PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr) : nullptr);
  EVP_PKEY* const key = request ? X509_REQ_get0_pubkey(request.get()) : nullptr;
  // Signed by the key it is for: nobody gets a certificate for somebody else's key.
  if (!IsP256(key) || X509_REQ_verify(request.get(), key) != 1) {
    ERR_clear_error();
    return Status(Code::kCorrupt, "not a certificate request with an EC P-256 key");
  }
  const Certificate certificate(X509_new());
  X509* const raw = certificate.get();
  if (raw == nullptr || !SetBasics(raw) ||
      !SetName(X509_get_subject_name(raw), Cat("manta node ", hosts.empty() ? "" : hosts.front())) ||
      X509_set_issuer_name(raw, X509_get_subject_name(issuer->get())) != 1 || X509_set_pubkey(raw, key) != 1 ||
      !AddExtension(raw, issuer->get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(raw, issuer->get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(raw, issuer->get(), NID_ext_key_usage, "serverAuth,clientAuth") ||
      !AddExtension(raw, issuer->get(), NID_authority_key_identifier, "keyid:always")) {
    return Failed("make a certificate");
  }
  if (Status status = AddHosts(raw, hosts); !status.ok()) return status;
  if (X509_sign(raw, issuer_key->get(), EVP_sha256()) == 0) return Failed("sign a certificate");
  return CertificateText(raw);
}

Result<std::vector<std::string>> HostsOf(const std::string& pem) {
  Result<Certificate> certificate = ReadCertificate(pem);
  if (!certificate.ok()) return certificate.status();
  std::vector<std::string> hosts;
  const Names names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate->get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < (names ? sk_GENERAL_NAME_num(names.get()) : 0); ++i) {
    int kind = 0;
    const auto* const value =
        static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &kind));
    const unsigned char* const data = ASN1_STRING_get0_data(value);
    const int size = ASN1_STRING_length(value);
    char text[INET6_ADDRSTRLEN] = "";
    if (kind == GEN_DNS) {
      hosts.emplace_back(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    } else if (kind == GEN_IPADD && inet_ntop(size == 4 ? AF_INET : AF_INET6, data, text, sizeof text) != nullptr) {
      hosts.emplace_back(text);
    }
  }
  return hosts;
}

Status Check(const KeyPair& own, const std::string& authority) {
  Result<Certificate> certificate = ReadCertificate(own.certificate);
  if (!certificate.ok()) return certificate.status();
  Result<Key> key = ReadKey(own.key);
  if (!key.ok()) return key.status();
  Result<Certificate> issuer = ReadCertificate(authority);
  if (!issuer.ok()) return issuer.status();
  const bool fits = X509_check_private_key(certificate->get(), key->get()) == 1;
  const bool signed_by = X509_verify(certificate->get(), X509_get0_pubkey(issuer->get())) == 1;
  ERR_clear_error();
  if (!fits) return Status(Code::kInvalid, "the certificate does not fit the key");
  if (!signed_by) return Status(Code::kInvalid, "the certificate was not signed by the cluster's authority");
  return {};
}

}  // namespace manta::wire::tls
