// TLS connections over non-blocking sockets, and the entry to this shared object.
//
// OpenSSL reads from and writes to buffers of ours. Many records come in by one recv (its own read-ahead moves all the
// rest to the front for each record: measured, half of the time), and go out by one send, never with SIGPIPE (the
// user's program may not have it ignored), and a caller may change its mind about what to write next after the socket
// was full.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/tls/openssl.h"

namespace manta::wire::tls {
namespace {

constexpr std::size_t kRecord = 16U << 10;  // bytes of one TLS record at most
constexpr std::size_t kBatch = 256U << 10;  // encrypted ahead of the socket
constexpr std::size_t kReadAhead = 256U << 10;

class Session final : public TlsSession {
 public:
  Session(SSL_CTX* context, int socket, bool accept, const std::string& name)
      : socket_(socket), ssl_(SSL_new(context)) {
    BIO* const bio = BIO_new(Method());
    if (ssl_ == nullptr || bio == nullptr) {
      failure_ = LastError();
      return;
    }
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_, bio, bio);
    if (accept) {
      SSL_set_accept_state(ssl_);
    } else {
      SSL_set_connect_state(ssl_);
      if (!name.empty()) SetName(name);
    }
  }
  ~Session() override { SSL_free(ssl_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Step Handshake() override {
    if (!failure_.empty()) return Step::kFailed;
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_);
    const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, done);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) SetFailure(error);
    const bool flushed = Flush();  // also the alert that tells the peer what was wrong
    if (!failure_.empty()) return Step::kFailed;
    if (!flushed) return Step::kWantsWrite;
    return done == 1 ? Step::kDone : Step::kWantsRead;
  }

  IoResult Read(std::span<std::byte> into) override {
    std::size_t total = 0;
    starved_ = false;
    while (total < into.size()) {
      ERR_clear_error();
      std::size_t got = 0;
      const int done = SSL_read_ex(ssl_, into.data() + total, into.size() - total, &got);
      if (done == 1) {
        total += got;
        continue;
      }
      const int error = SSL_get_error(ssl_, done);
      if (error == SSL_ERROR_WANT_READ) {
        starved_ = true;
        break;
      }
      if (total > 0) break;  // what arrived first; the end is found again by the next call
      if (error == SSL_ERROR_ZERO_RETURN) return {IoState::kClosed, 0};
      SetFailure(error);
      return {IoState::kFailed, 0};
    }
    // A key update is answered.
    if (WantsWrite()) Flush();
    return total > 0 || into.empty() ? IoResult{IoState::kSome, total} : IoResult{IoState::kWouldBlock, 0};
  }

  IoResult Write(std::span<const std::byte> bytes) override {
    const bool flushed = Flush();
    if (!failure_.empty()) return {IoState::kFailed, 0};
    if (!flushed) return {IoState::kWouldBlock, 0};
    std::size_t taken = 0;
    while (taken < bytes.size() && out_.size() + kRecord < kBatch) {
      ERR_clear_error();
      std::size_t count = 0;
      const int done = SSL_write_ex(ssl_, bytes.data() + taken, std::min(bytes.size() - taken, kRecord), &count);
      if (done != 1) {
        SetFailure(SSL_get_error(ssl_, done));
        return {IoState::kFailed, 0};
      }
      taken += count;
    }
    Flush();
    if (!failure_.empty()) return {IoState::kFailed, 0};
    return {IoState::kSome, taken};
  }

  void Close() override {
    if (!failure_.empty() || SSL_is_init_finished(ssl_) == 0) return;
    ERR_clear_error();
    SSL_shutdown(ssl_);
    Flush();
    ERR_clear_error();
  }

  [[nodiscard]] bool Buffered() const override { return !starved_ && (SSL_has_pending(ssl_) == 1 || taken_ < filled_); }
  [[nodiscard]] bool WantsWrite() const override { return sent_ < out_.size(); }
  [[nodiscard]] std::string failure() const override { return failure_; }

  [[nodiscard]] Digest Exported() const override {
    static constexpr char kLabel[] = "EXPERIMENTAL manta link";
    Digest value{};
    if (SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(value.data()), value.size(), kLabel,
                                   sizeof kLabel - 1, nullptr, 0, 0) != 1) {
      std::abort();  // only possible before the handshake: our own bug
    }
    return value;
  }

  [[nodiscard]] bool certified() const override {
    const X509* const peer = SSL_get0_peer_certificate(ssl_);
    return peer != nullptr && SSL_get_verify_result(ssl_) == X509_V_OK;
  }

 private:
  void SetName(const std::string& name) {
    X509_VERIFY_PARAM* const param = SSL_get0_param(ssl_);
    in6_addr address{};
    const bool number =
        inet_pton(AF_INET, name.c_str(), &address) == 1 || inet_pton(AF_INET6, name.c_str(), &address) == 1;
    const int set = number ? X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str())
                           : X509_VERIFY_PARAM_set1_host(param, name.data(), name.size());
    if (set != 1) failure_ = Cat("'", name, "' cannot be the name in a certificate");
  }

  void SetFailure(int error) {
    if (!failure_.empty()) return;
    if (error == SSL_ERROR_SYSCALL && socket_error_ != 0) {
      failure_ = std::strerror(socket_error_);
    } else if (const long result = SSL_get_verify_result(ssl_); result != X509_V_OK) {
      failure_ = Cat("the peer's certificate was refused: ", X509_verify_cert_error_string(result));
    } else if (SSL_is_init_finished(ssl_) == 0 && ERR_peek_error() == 0) {
      failure_ = "the peer closed during the TLS handshake";
    } else {
      failure_ = LastError();
    }
    ERR_clear_error();
  }

  // False: some is left.
  bool Flush() {
    while (sent_ < out_.size()) {
      const ssize_t count = send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count >= 0) {
        sent_ += static_cast<std::size_t>(count);
        continue;
      }
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (failure_.empty()) failure_ = std::strerror(errno);
      break;
    }
    out_.clear();
    sent_ = 0;
    return true;
  }

  static BIO_METHOD* Method() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "manta socket");
      BIO_meth_set_read_ex(made, ReadSocket);
      BIO_meth_set_write_ex(made, WriteBuffer);
      BIO_meth_set_ctrl(made, Control);
      return made;
    }();
    return method;
  }

  static int ReadSocket(BIO* bio, char* into, std::size_t size, std::size_t* got) {
    auto* const self = static_cast<Session*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    *got = 0;
    if (self->filled_ == self->taken_ && !self->Refill(bio)) return 0;
    *got = std::min(size, self->filled_ - self->taken_);
    std::memcpy(into, self->in_.get() + self->taken_, *got);
    self->taken_ += *got;
    return 1;
  }

  bool Refill(BIO* bio) {
    taken_ = filled_ = 0;
    if (!in_) in_ = std::make_unique_for_overwrite<char[]>(kReadAhead);
    for (;;) {
      const ssize_t count = recv(socket_, in_.get(), kReadAhead, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      filled_ = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      if (count > 0) return true;
      if (count == 0 || errno == ECONNRESET) {
        ended_ = true;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        BIO_set_retry_read(bio);
      } else {
        socket_error_ = errno;
      }
      return false;
    }
  }

  static int WriteBuffer(BIO* bio, const char* bytes, std::size_t size, std::size_t* taken) {
    auto* const self = static_cast<Session*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    self->out_.append(bytes, size);
    *taken = size;
    return 1;
  }

  static long Control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return static_cast<Session*>(BIO_get_data(bio))->ended_ ? 1 : 0;
    return 0;
  }

  const int socket_;
  SSL* const ssl_;
  std::unique_ptr<char[]> in_;  // encrypted, read ahead: from taken_ to filled_
  std::size_t filled_ = 0;
  std::size_t taken_ = 0;
  bool starved_ = true;  // what is here is no whole record
  std::string out_;      // encrypted
  std::size_t sent_ = 0;
  int socket_error_ = 0;
  bool ended_ = false;
  std::string failure_;
};

class OneContext final : public TlsContext {
 public:
  OneContext(Context context, std::unique_ptr<Digest> pinned)
      : context_(std::move(context)), pinned_(std::move(pinned)) {}
  std::unique_ptr<TlsSession> Connect(int socket, const std::string& name) override {
    return std::make_unique<Session>(context_.get(), socket, false, name);
  }
  std::unique_ptr<TlsSession> Accept(int socket) override {
    return std::make_unique<Session>(context_.get(), socket, true, "");
  }

 private:
  Context context_;
  std::unique_ptr<Digest> pinned_;  // what the verification callback points at
};

Result<Context> NewContext() {
  Context context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const raw = context.get();
  // AES-128 first: a third faster than 256, and not what anybody would break.
  if (raw == nullptr || SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(raw, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256") !=
          1 ||
      SSL_CTX_set1_groups_list(raw, "X25519:P-256") != 1) {
    return Failed("set up TLS 1.3");
  }
  // No resumption: connections live long, and a ticket would be one more secret. A peer that is killed sends no
  // farewell: frames have their lengths, so an end is an end.
  SSL_CTX_set_options(
      raw, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_RENEGOTIATION);
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
