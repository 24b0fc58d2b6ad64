// The seam to TLS. Everything that needs OpenSSL is in one shared object (libmanta_tls.so, src/wire/tls/), which
// is loaded by the first LoadTls and never before: a program that talks to its own machine does not pay
// for it. Both sides of the seam come from one build; the object is found beside the library or program that
// asks, and must answer with the same version.
//
// TLS 1.3 only, both sides with certificates of the cluster's authority (EC P-256). Certificates do not expire:
// only monotonic time decides anything here, and a node whose clock is wrong must still be able to talk. Members are
// shut out by a new token and, if need be, a new authority.
//
// Threads: a TlsLibrary and a TlsContext serve all threads; a TlsSession one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "types/status.h"
#include "wire/crypto.h"

namespace manta::wire {

// Outcome of one read or write that does not block.
enum class IoState : std::uint8_t {
  kSome,        // `bytes` of them
  kWouldBlock,  // none now
  kClosed,      // the peer closed, in order: under TLS with close_notify
  kFailed,      // see failure()
};
struct IoResult {
  IoState state = IoState::kFailed;
  std::size_t bytes = 0;
};

// One connection. It does not own the socket.
class TlsSession {
 public:
  enum class Step : std::uint8_t { kDone, kWantsRead, kWantsWrite, kFailed };
  virtual ~TlsSession() = default;

  virtual Step Handshake() = 0;
  virtual IoResult Read(std::span<std::byte> into) = 0;
  // What it takes it will send, the rest of it by later calls: see WantsWrite.
  virtual IoResult Write(std::span<const std::byte> bytes) = 0;
  // Tells the peer that this is the end and no cut. Best effort.
  virtual void Close() = 0;
  // For a bulk transfer, right after the link's handshake: from here on the records are ours instead of OpenSSL's, if
  // they are faster here (wire/tls/records.h). The peer need not do the same. False: OpenSSL goes on.
  virtual bool UseBulkRecords() = 0;
  // Bytes may be had without the socket becoming readable.
  [[nodiscard]] virtual bool Buffered() const = 0;
  // Has encrypted bytes that the socket did not take; call Write (also with none) when it is writable.
  [[nodiscard]] virtual bool WantsWrite() const = 0;
  [[nodiscard]] virtual std::string failure() const = 0;
  // Of this connection alone, the same on both sides.
  [[nodiscard]] virtual Digest Exported() const = 0;
  // The peer showed a certificate, and the authority signed it.
  [[nodiscard]] virtual bool certified() const = 0;
};

// One identity: certificate, key and authority.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // `name`: the host that was dialled, which the certificate must carry; empty: any of the cluster.
  virtual std::unique_ptr<TlsSession> Connect(int socket, const std::string& name) = 0;
  virtual std::unique_ptr<TlsSession> Accept(int socket) = 0;
};

struct KeyPair {
  std::string certificate;  // PEM
  std::string key;          // PEM, secret
};

class TlsLibrary {
 public:
  virtual ~TlsLibrary() = default;

  // A member: shows its certificate, takes only peers with one of the authority (a listener also takes those without:
  // they may only join, see certified()).
  virtual Result<std::unique_ptr<TlsContext>> Member(const KeyPair& own, const std::string& authority) = 0;
  // A joining one: has no certificate, takes the listener whose authority has this fingerprint.
  virtual Result<std::unique_ptr<TlsContext>> Joining(const Digest& fingerprint) = 0;

  virtual Result<KeyPair> MakeAuthority(const std::string& name) = 0;
  // A new key and a request to have it certified, in `certificate`.
  virtual Result<KeyPair> MakeRequest(const std::string& name) = 0;
  // Certifies the key of `request` for these hosts (names and addresses), whatever names the request itself has.
  virtual Result<std::string> Sign(const KeyPair& authority, const std::string& request,
                                   const std::vector<std::string>& hosts) = 0;
  virtual Result<Digest> Fingerprint(const std::string& certificate) = 0;
  virtual Result<std::vector<std::string>> Hosts(const std::string& certificate) = 0;
  // The authority signed it, and the key fits.
  virtual Status Check(const KeyPair& own, const std::string& authority) = 0;
};

// Loads it once; later calls are free. Says what is missing if it cannot.
Result<TlsLibrary*> LoadTls();
[[nodiscard]] bool TlsLoaded();

}  // namespace manta::wire
