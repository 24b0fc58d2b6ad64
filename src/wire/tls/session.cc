// TLS connections over non-blocking sockets, and the entry to this shared object.
//
// OpenSSL shakes hands; the records after that are ours (wire/tls/records.h), under the traffic secrets that it tells
// by the callback made for that. There are no tickets, so nothing is sent under these keys before we do it.
//
// Both read from and write to the same buffers. Many records come in by one recv, and go out by one send, never with
// SIGPIPE (the user's program may not have it ignored), and a caller may change its mind about what to write next after
// the socket was full.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "wire/tls/openssl.h"
#include "wire/tls/records.h"

namespace manta::wire::tls {
namespace {

constexpr std::size_t kBatch = 256U << 10;  // encrypted ahead of the socket
constexpr std::size_t kReadAhead = 256U << 10;
constexpr std::size_t kMostOutgoing = kBatch + (64U << 10);  // what the handshake, alerts and key updates add
static_assert(kReadAhead > kRecordContent + kRecordExtra);

// A message of type 24 and length 1: new keys from the next record on, and none wanted back. Each end counts its own.
constexpr std::array kKeyUpdate = {std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}};

class Session final : public TlsSession {
 public:
  Session(SSL_CTX* context, int socket, bool accept, const std::string& name)
      : socket_(socket), ssl_(SSL_new(context)) {
    BIO* const bio = BIO_new(Method());
    if (ssl_ == nullptr || bio == nullptr) {
      failure_ = LastError();
      return;
    }
    SSL_set_app_data(ssl_, this);
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
  ~Session() override {
    for (Digest& secret : secrets_) OPENSSL_cleanse(secret.data(), secret.size());
    SSL_free(ssl_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // "CLIENT_TRAFFIC_SECRET_0", the client's random number and the secret, in hex; and other lines.
  static void OnSecret(const SSL* ssl, const char* text) {
    auto* const self = static_cast<Session*>(SSL_get_app_data(ssl));
    const std::string_view line(text);
    constexpr std::string_view kNames[2] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
    for (std::size_t i = 0; i < 2 && self != nullptr; ++i) {
      const std::size_t start = kNames[i].size() + 65;
      if (!line.starts_with(kNames[i]) || line.size() != start + 64) continue;
      for (std::size_t byte = 0; byte < 32; ++byte) {
        self->secrets_[i][byte] = static_cast<std::byte>(OPENSSL_hexchar2int(line[start + 2 * byte]) << 4 |
                                                         OPENSSL_hexchar2int(line[start + 2 * byte + 1]));
      }
      self->has_secrets_[i] = true;
    }
  }

  Step Handshake() override {
    if (!failure_.empty()) return Step::kFailed;
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_);
    const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, done);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) SetFailure(error);
    const bool flushed = Flush();  // also the alert that tells the peer what was wrong
    if (gone_ && failure_.empty()) failure_ = "the peer closed during the TLS handshake";
    if (!failure_.empty()) return Step::kFailed;
    if (!flushed) return Step::kWantsWrite;
    if (done != 1) return Step::kWantsRead;
    return TakeOver() ? Step::kDone : Step::kFailed;
  }

  IoResult Read(std::span<std::byte> into) override {
    std::size_t total = 0;
    starved_ = false;
    while (total < into.size()) {
      if (left_ > 0) {  // of a record that did not fit the last time
        const std::size_t count = std::min(left_, into.size() - total);
        std::memcpy(into.data() + total, rest_.get() + rest_at_, count);
        rest_at_ += count;
        left_ -= count;
        total += count;
        continue;
      }
      const Got got = ReadRecord(into.subspan(total), &total);
      if (got == Got::kRecord) continue;
      if (got == Got::kNotYet) starved_ = true;
      if (got == Got::kNotYet || total > 0) break;  // what arrived first; the end is found again by the next call
      return {got == Got::kEnd ? IoState::kClosed : IoState::kFailed, 0};
    }
    return total > 0 || into.empty() ? IoResult{IoState::kSome, total} : IoResult{IoState::kWouldBlock, 0};
  }

  IoResult Write(std::span<const std::byte> bytes) override {
    const bool flushed = Flush();
    if (gone_) return {IoState::kClosed, 0};
    if (!failure_.empty()) return {IoState::kFailed, 0};
    if (!flushed) return {IoState::kWouldBlock, 0};
    std::size_t taken = 0;
    while (taken < bytes.size() && out_size_ + kRecordContent + kRecordExtra <= kBatch) {
      if (write_keys_.worn()) UpdateWriteKeys();
      const std::size_t count = std::min(bytes.size() - taken, kRecordContent);
      Seal(bytes.subspan(taken, count), ContentType::kData);
      taken += count;
    }
    Flush();
    if (gone_) return {IoState::kClosed, 0};
    if (!failure_.empty()) return {IoState::kFailed, 0};
    return {IoState::kSome, taken};
  }

  void Close() override {
    if (!failure_.empty() || gone_ || !taken_over_) return;
    constexpr std::array kCloseNotify = {std::byte{1}, std::byte{0}};
    Flush();
    Seal(kCloseNotify, ContentType::kAlert);
    Flush();
  }

  [[nodiscard]] bool Buffered() const override { return left_ > 0 || (!starved_ && taken_ < filled_); }
  [[nodiscard]] bool WantsWrite() const override { return sent_ < out_size_; }
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

  // ---- records ----

  enum class Got : std::uint8_t { kRecord, kNotYet, kEnd, kFailed };

  // From OpenSSL, which has shaken hands and read not a byte more.
  bool TakeOver() {
    if (taken_over_) return true;
    if (!has_secrets_[0] || !has_secrets_[1] || SSL_has_pending(ssl_) == 1) {
      failure_ = "the TLS handshake gave no keys";
      return false;
    }
    const std::size_t own = SSL_is_server(ssl_) == 1 ? 1 : 0;
    write_keys_.Set(secrets_[own]);
    read_keys_.Set(secrets_[1 - own]);
    for (Digest& secret : secrets_) OPENSSL_cleanse(secret.data(), secret.size());
    taken_over_ = true;
    return true;
  }

  Got Broken(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
    return Got::kFailed;
  }

  // Of the record that begins at taken_, of which the header is there. 0: it is none.
  [[nodiscard]] std::size_t RecordSize() const {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(in_[taken_ + i]));
    };
    const std::size_t size = kRecordHeader + (byte(3) << 8 | byte(4));
    const bool good = byte(0) == static_cast<std::size_t>(ContentType::kData) && byte(1) == 3 && size >= kRecordExtra &&
                      size <= kRecordContent + kRecordExtra;
    return good ? size : 0;
  }

  // Decrypts the next record into `into` and adds to *total, or, if it is larger, into rest_.
  Got ReadRecord(std::span<std::byte> into, std::size_t* total) {
    if (!failure_.empty()) return Got::kFailed;
    std::size_t size = 0;
    for (;;) {
      if (filled_ - taken_ >= kRecordHeader) {
        size = RecordSize();
        if (size == 0) return Broken("what came is no record of TLS");
        if (filled_ - taken_ >= size) break;
      }
      // A peer that is killed sends no farewell: frames have their lengths, so an end is an end.
      if (ended_) return Got::kEnd;
      if (Refill() || ended_) continue;
      return socket_error_ != 0 ? Broken(std::strerror(socket_error_)) : Got::kNotYet;
    }
    const std::span record(reinterpret_cast<const std::byte*>(in_.get()) + taken_, size);
    taken_ += size;
    const std::size_t content = size - kRecordExtra;
    const bool fits = content <= into.size();
    if (!fits && !rest_) rest_ = std::make_unique_for_overwrite<std::byte[]>(kRecordContent);
    std::byte* const where = fits ? into.data() : rest_.get();
    ContentType type{};
    if (!read_keys_.Open(record, where, &type)) return Broken("a record was forged, or broken on the way");
    if (type != ContentType::kData) return OnControl(type, {where, content});
    if (fits) {
      *total += content;
    } else {
      rest_at_ = 0;
      left_ = content;
    }
    return Got::kRecord;
  }

  Got OnControl(ContentType type, std::span<const std::byte> content) {
    if (type == ContentType::kAlert && content.size() == 2) {
      const int what = std::to_integer<int>(content[1]);
      if (what != SSL_AD_CLOSE_NOTIFY) return Broken(Cat("the peer ended it: ", SSL_alert_desc_string_long(what)));
      ended_ = true;
      taken_ = filled_;
      return Got::kEnd;
    }
    if (type == ContentType::kHandshake &&
        std::equal(content.begin(), content.end(), kKeyUpdate.begin(), kKeyUpdate.end())) {
      read_keys_.Update();
      return Got::kRecord;
    }
    return Broken(Cat("a record of type ", static_cast<int>(type), " makes no sense here"));
  }

  void UpdateWriteKeys() {
    Seal(kKeyUpdate, ContentType::kHandshake);
    write_keys_.Update();
  }

  // Into what goes out.
  void Seal(std::span<const std::byte> content, ContentType type) {
    if (out_size_ + content.size() + kRecordExtra > kMostOutgoing) return;  // only a farewell can find it full
    if (!out_) out_ = std::make_unique_for_overwrite<char[]>(kMostOutgoing);
    out_size_ += write_keys_.Seal(content, type, reinterpret_cast<std::byte*>(out_.get()) + out_size_);
  }

  // False: some is left.
  bool Flush() {
    while (sent_ < out_size_) {
      const ssize_t count = send(socket_, out_.get() + sent_, out_size_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count >= 0) {
        sent_ += static_cast<std::size_t>(count);
        continue;
      }
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (errno == EPIPE || errno == ECONNRESET) {
        gone_ = true;
      } else if (failure_.empty()) {
        failure_ = std::strerror(errno);
      }
      break;
    }
    out_size_ = 0;
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
    if (self->filled_ == self->taken_ && !self->Refill()) {
      if (!self->ended_ && self->socket_error_ == 0) BIO_set_retry_read(bio);
      return 0;
    }
    *got = std::min(size, self->filled_ - self->taken_);
    std::memcpy(into, self->in_.get() + self->taken_, *got);
    self->taken_ += *got;
    return 1;
  }

  // More bytes behind those that are there. False: none now, an end (ended_) or a failure (socket_error_).
  bool Refill() {
    if (!in_) in_ = std::make_unique_for_overwrite<char[]>(kReadAhead);
    std::memmove(in_.get(), in_.get() + taken_, filled_ - taken_);  // less than a record
    filled_ -= taken_;
    taken_ = 0;
    for (;;) {
      const ssize_t count = recv(socket_, in_.get() + filled_, kReadAhead - filled_, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      filled_ += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      if (count > 0) return true;
      if (count == 0 || errno == ECONNRESET) {
        ended_ = true;
      } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        socket_error_ = errno;
      }
      return false;
    }
  }

  static int WriteBuffer(BIO* bio, const char* bytes, std::size_t size, std::size_t* taken) {
    auto* const self = static_cast<Session*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    *taken = 0;
    if (self->out_size_ + size > kMostOutgoing) return 0;
    if (!self->out_) self->out_ = std::make_unique_for_overwrite<char[]>(kMostOutgoing);
    std::memcpy(self->out_.get() + self->out_size_, bytes, size);
    self->out_size_ += size;
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
  bool starved_ = true;                // what is here is no whole record
  std::unique_ptr<std::byte[]> rest_;  // of the last record, what did not fit: left_ bytes from rest_at_
  std::size_t rest_at_ = 0;
  std::size_t left_ = 0;
  std::unique_ptr<char[]> out_;  // encrypted: out_size_, of which sent_ are gone
  std::size_t out_size_ = 0;
  std::size_t sent_ = 0;
  Digest secrets_[2]{};  // of the client and the server, until we take over
  bool has_secrets_[2] = {false, false};
  bool taken_over_ = false;
  RecordKeys read_keys_;
  RecordKeys write_keys_;
  int socket_error_ = 0;
  bool ended_ = false;  // nothing more to read
  bool gone_ = false;   // nobody to write to
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
  // AES-128 and nothing else, for both ends are ours: a third faster than 256, and not what anybody would break.
  if (raw == nullptr || SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(raw, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(raw, "X25519:P-256") != 1) {
    return Failed("set up TLS 1.3");
  }
  SSL_CTX_set_keylog_callback(raw, Session::OnSecret);
  // No resumption: connections live long, and a ticket would be one more secret.
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
