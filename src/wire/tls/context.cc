// Identities, and the entry to this shared object.
#include <cstring>

#include "wire/tls/openssl.h"
#include "wire/tls/session.h"

namespace manta::wire::tls {
namespace {

class OneContext final : public TlsContext {
 public:
  OneContext(Context context, std::unique_ptr<Digest> pinned)
      : context_(std::move(context)), pinned_(std::move(pinned)) {}
  std::unique_ptr<TlsSession> Connect(int socket, const std::string& name) override {
    return MakeSession(context_.get(), socket, false, name);
  }
  std::unique_ptr<TlsSession> Accept(int socket) override { return MakeSession(context_.get(), socket, true, ""); }

 private:
  Context context_;
  std::unique_ptr<Digest> pinned_;  // what the verification callback points at
};

Result<Context> NewContext() {
  Context context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const raw = context.get();
  // AES-128 and nothing else, for both ends are ours: a third faster than 256, and not what anybody would break.
  if (raw == nullptr || SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(raw, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(raw, "X25519:P-256") != 1) {
    return Failed("set up TLS 1.3");
  }
  if (BulkRecordsUsed()) SSL_CTX_set_keylog_callback(raw, NoteSecret);
  // No resumption: connections live long, and a ticket would be one more secret.
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(raw), X509_V_FLAG_NO_CHECK_TIME);
  return context;
}

// Trusts the one certificate of the chain that has the fingerprint, and then checks as usual.
int VerifyPinned(X509_STORE_CTX* given, void* argument) {
  const auto& pinned = *static_cast<const Digest*>(argument);
  STACK_OF(X509)* const chain = X509_STORE_CTX_get0_untrusted(given);
  X509* root = nullptr;
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    X509* const one = sk_X509_value(chain, i);
    if (FingerprintOf(one) == pinned) root = one;
  }
  const Store store(X509_STORE_new());
  const StoreContext context(X509_STORE_CTX_new());
  if (root == nullptr || !store || !context || X509_STORE_add_cert(store.get(), root) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), X509_STORE_CTX_get0_cert(given), chain) != 1) {
    X509_STORE_CTX_set_error(given, X509_V_ERR_CERT_UNTRUSTED);
    return 0;
  }
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
  X509_STORE_CTX_set_default(context.get(), "ssl_server");
  const int good = X509_verify_cert(context.get());
  X509_STORE_CTX_set_error(given, X509_STORE_CTX_get_error(context.get()));
  return good == 1 ? 1 : 0;
}

class Library final : public TlsLibrary {
 public:
  Result<std::unique_ptr<TlsContext>> Member(const KeyPair& own, const std::string& authority) override {
    Result<Context> context = NewContext();
    if (!context.ok()) return context.status();
    SSL_CTX* const raw = context->get();
    Result<Certificate> certificate = ReadCertificate(own.certificate);
    if (!certificate.ok()) return certificate.status();
    Result<Key> key = ReadKey(own.key);
    if (!key.ok()) return key.status();
    Result<Certificate> root = ReadCertificate(authority);
    if (!root.ok()) return root.status();
    // The authority goes along: who joins knows only its fingerprint.
    if (SSL_CTX_use_certificate(raw, certificate->get()) != 1 || SSL_CTX_use_PrivateKey(raw, key->get()) != 1 ||
        SSL_CTX_add1_chain_cert(raw, root->get()) != 1 ||
        X509_STORE_add_cert(SSL_CTX_get_cert_store(raw), root->get()) != 1) {
      return Failed("use the node's certificate");
    }
    SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
    return std::unique_ptr<TlsContext>(std::make_unique<OneContext>(std::move(*context), nullptr));
  }

  Result<std::unique_ptr<TlsContext>> Joining(const Digest& fingerprint) override {
    Result<Context> context = NewContext();
    if (!context.ok()) return context.status();
    auto pinned = std::make_unique<Digest>(fingerprint);
    SSL_CTX_set_verify(context->get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(context->get(), VerifyPinned, pinned.get());
    return std::unique_ptr<TlsContext>(std::make_unique<OneContext>(std::move(*context), std::move(pinned)));
  }

  Result<KeyPair> MakeAuthority(const std::string& name) override { return tls::MakeAuthority(name); }
  Result<KeyPair> MakeRequest(const std::string& name) override { return tls::MakeRequest(name); }
  Result<std::string> Sign(const KeyPair& authority, const std::string& request,
                           const std::vector<std::string>& hosts) override {
    return tls::Sign(authority, request, hosts);
  }
  Result<Digest> Fingerprint(const std::string& certificate) override {
    Result<Certificate> parsed = ReadCertificate(certificate);
    if (!parsed.ok()) return parsed.status();
    return FingerprintOf(parsed->get());
  }
  Result<std::vector<std::string>> Hosts(const std::string& certificate) override { return HostsOf(certificate); }
  Status Check(const KeyPair& own, const std::string& authority) override { return tls::Check(own, authority); }
};

}  // namespace
}  // namespace manta::wire::tls

// Null: of another version.
extern "C" __attribute__((visibility("default"))) manta::wire::TlsLibrary* manta_tls_library(const char* version) {
  if (std::strcmp(version, MANTA_VERSION) != 0) return nullptr;
  // No handlers at exit: threads of the user's program may still be sending.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  static manta::wire::tls::Library library;
  return &library;
}
