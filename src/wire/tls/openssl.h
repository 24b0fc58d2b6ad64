// Owners of OpenSSL's objects and its error text, for the two files of this folder.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "types/status.h"
#include "wire/tls.h"

namespace manta::wire::tls {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Freer<Free>>;

using Bio = Owned<BIO, BIO_free_all>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Request = Owned<X509_REQ, X509_REQ_free>;
using Context = Owned<SSL_CTX, SSL_CTX_free>;
using Store = Owned<X509_STORE, X509_STORE_free>;
using StoreContext = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;
using Names = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;

// What OpenSSL says went wrong last; empties its queue.
[[nodiscard]] std::string LastError();
[[nodiscard]] Status Failed(std::string_view what);

Result<Certificate> ReadCertificate(const std::string& pem);
Result<Key> ReadKey(const std::string& pem);
[[nodiscard]] Digest FingerprintOf(X509* certificate);

// certificates.cc
Result<KeyPair> MakeAuthority(const std::string& name);
Result<KeyPair> MakeRequest(const std::string& name);
Result<std::string> Sign(const KeyPair& authority, const std::string& request, const std::vector<std::string>& hosts);
Result<std::vector<std::string>> HostsOf(const std::string& certificate);
Status Check(const KeyPair& own, const std::string& authority);

}  // namespace manta::wire::tls
