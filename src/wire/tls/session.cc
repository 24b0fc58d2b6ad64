// TLS connections over non-blocking sockets.
//
// OpenSSL shakes hands, and then reads and writes the records, too. Only a bulk transfer of objects goes on with
// records of ours, where they are worth it (wire/tls/records.h): UseBulkRecords takes over between two records, under
// the traffic secrets that OpenSSL tells by the callback made for that. Each end does so for itself, since the bytes
// are the same.
//
// Both read from and write to the same buffers. Many records come in by one recv, and go out by one send, never with
// SIGPIPE (the user's program may not have it ignored), and a caller may change its mind about what to write next after
// the socket was full. OpenSSL is given whole records only, so that it never holds a part of one.
//
// An end without close_notify is a failure and no end: an adversary may cut a connection, but not end it.
#include "wire/tls/session.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "wire/tls/openssl.h"
#include "wire/tls/records.h"

namespace manta::wire::tls {
namespace {

constexpr std::size_t kBatch = 256U << 10;  // encrypted ahead of the socket
constexpr std::size_t kReadAhead = 256U << 10;
constexpr std::size_t kMostOutgoing = kBatch + (64U << 10);  // what the handshake, alerts and key updates add
constexpr std::size_t kMostIncoming = kRecordHeader + kRecordContent + 256;  // a record of any cipher
static_assert(kReadAhead > kMostIncoming);
// Records of the token's handshake before a bulk transfer begins. A peer that has sent more may have changed its keys.
constexpr std::uint64_t kMostBefore = 64;

constexpr int kMostEmpty = 32;  // records without data in a row, from a peer of a bulk transfer

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
    if (!handshaken_) {
      handshaken_ = true;
      read_records_.Restart();
      written_records_.Restart();
    }
    return Step::kDone;
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
      const Got got = bulk_ ? ReadRecord(into.subspan(total), &total) : ReadByOpenSsl(into.subspan(total), &total);
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
      const std::size_t count = std::min(bytes.size() - taken, kRecordContent);
      if (bulk_) {
        if (bulk_->write.worn()) UpdateWriteKeys();
        Seal(bytes.subspan(taken, count), ContentType::kData);
      } else if (!WriteByOpenSsl(bytes.subspan(taken, count))) {
        break;
      }
      taken += count;
    }
    Flush();
    if (gone_) return {IoState::kClosed, 0};
    if (!failure_.empty()) return {IoState::kFailed, 0};
    return {IoState::kSome, taken};
  }

  void Close() override {
    if (!failure_.empty() || gone_ || !handshaken_) return;
    Flush();
    if (bulk_) {
      Say(Alert::kCloseNotify);
    } else {
      SSL_shutdown(ssl_);  // once: the peer's own is not waited for
      ERR_clear_error();
    }
    Flush();
  }

  bool UseBulkRecords() override {
    if (bulk_) return true;
    // Between two records, with nothing in OpenSSL that was not read: what it decrypted last is kept.
    if (!handshaken_ || !failure_.empty() || !has_secrets_[0] || !has_secrets_[1] || !read_records_.between() ||
        !written_records_.between() || read_records_.count() > kMostBefore || written_records_.count() > kMostBefore) {
      return false;
    }
    while (left_ == 0 && SSL_pending(ssl_) > 0) {
      if (!rest_) rest_ = std::make_unique_for_overwrite<std::byte[]>(kRecordContent);
      const int count = SSL_read(ssl_, rest_.get(), SSL_pending(ssl_));
      if (count <= 0) return false;
      rest_at_ = 0;
      left_ = static_cast<std::size_t>(count);
    }
    bulk_ = std::make_unique<Bulk>();
    const std::size_t own = SSL_is_server(ssl_) == 1 ? 1 : 0;
    bulk_->write.Set(secrets_[own], written_records_.count());
    bulk_->read.Set(secrets_[1 - own], read_records_.count());
    for (Digest& secret : secrets_) OPENSSL_cleanse(secret.data(), secret.size());
    return true;
  }

  [[nodiscard]] bool Buffered() const override {
    return left_ > 0 || (ssl_ != nullptr && SSL_pending(ssl_) > 0) || (!starved_ && taken_ < filled_);
  }
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

  // The keys of a bulk transfer.
  struct Bulk {
    RecordKeys read;
    RecordKeys write;
    int empty = 0;  // records without data since the last one with some
  };

  Got Broken(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
    return Got::kFailed;
  }
  // The same, and tells the peer.
  Got Refuse(Alert alert, std::string why) {
    if (failure_.empty()) {
      Say(alert);
      Flush();
    }
    return Broken(std::move(why));
  }
  void Say(Alert alert) {
    const std::byte level{static_cast<unsigned char>(alert == Alert::kCloseNotify ? 1 : 2)};
    const std::array message = {level, static_cast<std::byte>(alert)};
    Seal(message, ContentType::kAlert);
  }
  Got Cut() { return Broken("the connection was cut: it ended without close_notify"); }

  Got ReadByOpenSsl(std::span<std::byte> into, std::size_t* total) {
    if (!failure_.empty()) return Got::kFailed;
    if (closed_) return Got::kEnd;
    ERR_clear_error();
    std::size_t count = 0;
    const int read = SSL_read_ex(ssl_, into.data(), into.size(), &count);
    if (WantsWrite()) Flush();  // it answered a key update, or refused what came
    if (read == 1) {
      *total += count;
      return Got::kRecord;
    }
    const int error = SSL_get_error(ssl_, read);
    if (error == SSL_ERROR_WANT_READ) return Got::kNotYet;
    if (error == SSL_ERROR_ZERO_RETURN) {
      closed_ = true;
      taken_ = filled_;  // what follows it is nobody's
      return Got::kEnd;
    }
    if (socket_error_ != 0) return Broken(std::strerror(socket_error_));
    if (ended_) {
      ERR_clear_error();
      return Cut();
    }
    SetFailure(error);
    return Got::kFailed;
  }

  // One record at most. Into what goes out, which has room for it.
  bool WriteByOpenSsl(std::span<const std::byte> bytes) {
    ERR_clear_error();
    if (written_records_.count() - keys_since_ >= RecordKeys::kMostRecords) {
      keys_since_ = written_records_.count();
      if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) SetFailure(SSL_ERROR_SSL);
    }
    std::size_t count = 0;
    const int written = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &count);
    if (written == 1) return true;
    SetFailure(SSL_get_error(ssl_, written));
    return false;
  }

  // Decrypts the next record into `into` and adds to *total, or, if it is larger, into rest_.
  Got ReadRecord(std::span<std::byte> into, std::size_t* total) {
    if (!failure_.empty()) return Got::kFailed;
    if (closed_) return Got::kEnd;
    std::size_t size = 0;
    for (;;) {
      if (filled_ - taken_ >= kRecordHeader) {
        Alert alert{};
        size = RecordSize(Incoming().first<kRecordHeader>(), &alert);
        if (size == 0) return Refuse(alert, "what came is no record of TLS");
        if (filled_ - taken_ >= size) break;
      }
      if (ended_) return Cut();
      if (Refill() || ended_) continue;
      return socket_error_ != 0 ? Broken(std::strerror(socket_error_)) : Got::kNotYet;
    }
    const std::span record = Incoming().first(size);
    taken_ += size;
    const std::size_t content = size - kRecordExtra;
    const bool fits = content <= into.size();
    if (!fits && !rest_) rest_ = std::make_unique_for_overwrite<std::byte[]>(kRecordContent);
    std::byte* const where = fits ? into.data() : rest_.get();
    std::byte last{};
    if (!bulk_->read.Open(record, where, &last)) {
      return Refuse(Alert::kBadRecordMac, "a record was forged, or broken on the way");
    }
    const Inner inner = WithoutPadding({where, content}, last);
    if (!inner.ok) return Refuse(Alert::kUnexpectedMessage, "a record has no type");
    bulk_->empty = inner.type == ContentType::kData && inner.size > 0 ? 0 : bulk_->empty + 1;
    if (bulk_->empty > kMostEmpty) return Refuse(Alert::kUnexpectedMessage, "too many records without data");
    if (inner.type != ContentType::kData) return OnControl(inner.type, {where, inner.size});
    if (fits) {
      *total += inner.size;
    } else {
      rest_at_ = 0;
      left_ = inner.size;
    }
    return Got::kRecord;
  }

  Got OnControl(ContentType type, std::span<const std::byte> content) {
    const ControlRecord record = ReadControl(type, content);
    switch (record.control) {
      case Control::kClosed:
        closed_ = true;
        taken_ = filled_;  // what follows it is nobody's
        return Got::kEnd;
      case Control::kAlert:
        return Broken(Cat("the peer ended it: ", SSL_alert_desc_string_long(static_cast<int>(record.alert))));
      case Control::kKeyUpdateWanted:
        UpdateWriteKeys();
        Flush();
        [[fallthrough]];
      case Control::kKeyUpdate:
        bulk_->read.Update();
        [[fallthrough]];
      case Control::kNothing:
        return Got::kRecord;
      case Control::kWrong:
        break;
    }
    return Refuse(record.alert, Cat("a record of type ", static_cast<int>(type), " makes no sense here"));
  }

  void UpdateWriteKeys() {
    Seal(kKeyUpdate, ContentType::kHandshake);
    bulk_->write.Update();
  }

  // Into what goes out.
  void Seal(std::span<const std::byte> content, ContentType type) {
    if (out_size_ + content.size() + kRecordExtra > kMostOutgoing) return;  // only a farewell can find it full
    if (!out_) out_ = std::make_unique_for_overwrite<char[]>(kMostOutgoing);
    out_size_ += bulk_->write.Seal(content, type, reinterpret_cast<std::byte*>(out_.get()) + out_size_);
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
    while (!self->HasRecord()) {
      if (self->Refill()) continue;
      if (!self->ended_ && self->socket_error_ == 0) BIO_set_retry_read(bio);
      return 0;
    }
    *got = std::min(size, self->filled_ - self->taken_);
    std::memcpy(into, self->in_.get() + self->taken_, *got);
    self->read_records_.Add(std::as_bytes(std::span(into, *got)));
    self->taken_ += *got;
    return 1;
  }

  [[nodiscard]] std::span<const std::byte> Incoming() const {
    return {reinterpret_cast<const std::byte*>(in_.get()) + taken_, filled_ - taken_};
  }
  // Whether OpenSSL may read: after the handshake the rest of a record that it has begun, or a whole one. Before, it
  // gets what there is, which may be no record at all.
  [[nodiscard]] bool HasRecord() const {
    const std::span<const std::byte> bytes = Incoming();
    if (bytes.empty() || !handshaken_ || !read_records_.between()) return !bytes.empty();
    if (bytes.size() < kRecordHeader) return false;
    const std::size_t size =
        kRecordHeader + (std::to_integer<std::size_t>(bytes[3]) << 8 | std::to_integer<std::size_t>(bytes[4]));
    return bytes.size() >= size || size > kMostIncoming;
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
    self->written_records_.Add(std::as_bytes(std::span(bytes, size)));
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
  Digest secrets_[2]{};  // of the client and the server, until bulk_ has them
  bool has_secrets_[2] = {false, false};
  bool handshaken_ = false;
  RecordCounter read_records_;     // since the handshake, by OpenSSL
  RecordCounter written_records_;  // likewise
  std::uint64_t keys_since_ = 0;   // of written_records_: when OpenSSL changed keys
  std::unique_ptr<Bulk> bulk_;     // none: OpenSSL reads and writes the records
  int socket_error_ = 0;
  bool ended_ = false;   // the socket has nothing more to read
  bool closed_ = false;  // the peer said that this is the end
  bool gone_ = false;    // nobody to write to
  std::string failure_;
};

}  // namespace

std::unique_ptr<TlsSession> MakeSession(SSL_CTX* context, int socket, bool accept, const std::string& name) {
  return std::make_unique<Session>(context, socket, accept, name);
}

void NoteSecret(const SSL* ssl, const char* line) { Session::OnSecret(ssl, line); }

bool BulkRecordsUsed() {
  static const bool used = [] {
    const char* const choice = secure_getenv("MANTA_TLS_BULK");
    return BulkRecordsPay() && (choice == nullptr || std::strcmp(choice, "openssl") != 0);
  }();
  return used;
}

}  // namespace manta::wire::tls
