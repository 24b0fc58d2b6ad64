// Secrets is the folder where a cluster keeps what proves membership, mode
// 0700, owned by this user.
//
//   token      the cluster's id and its 256-bit token (after a rotation the one before, until when)
//   joins      one-time join tokens of the head, hashed (wire/join.h)
//   ca.crt     the cluster's authority; ca.key only on the head (wire/authority.h)
//   node.crt   this node's certificate, and its node.key
//
// Who has the token is a member: it may run code as this user. So files with a looser mode than 0600, of
// another user, or reached through a symbolic link, are refused, not repaired: somebody may have read them.
//
// Every file changes by a rename, so that a reader sees the old one or the new one. Processes that hold a
// Secrets see a rotation by themselves: keys() looks whether the file has changed.
//
// Threads: any; guarded inside.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "types/id.h"
#include "wire/crypto.h"

namespace manta::wire {

inline constexpr std::string_view kTokenFile = "token";

class TlsContext;

using Token = Digest;  // 32 random bytes

// Wall-clock seconds since 1970: only for what must outlive a reboot (an expiry in a file).
[[nodiscard]] std::int64_t UnixNow();

// What a process proves its membership with.
struct Keys {
  Id cluster;
  Token token{};
  bool has_previous = false;
  Token previous{};                 // accepted from others; used towards who does not know the new one yet
  std::int64_t previous_until = 0;  // UnixNow
};

// Eight bytes that name a key without telling it, so that a peer knows which one is meant.
using KeyId = std::array<std::byte, 8>;
[[nodiscard]] KeyId IdOf(const Token& key);

class Secrets {
 public:
  // $MANTA_SECRETS, else $XDG_STATE_HOME/manta, else ~/.manta. Empty if there is none of them.
  [[nodiscard]] static std::string DefaultFolder();

  // Uses the folder as it is; kNotFound if there is no token in it.
  static Result<std::shared_ptr<Secrets>> Open(const std::string& folder);
  // Makes the folder, the cluster's id and its token if there is none. Of several processes that do
  // this at once, all end with the same token.
  static Result<std::shared_ptr<Secrets>> OpenOrCreate(const std::string& folder);
  // Without a folder: for tests, and for who got the keys through a descriptor.
  static std::shared_ptr<Secrets> FromKeys(const Keys& keys);
  ~Secrets();
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  // As the file says now. Keeps the last good ones if it cannot be read any more.
  [[nodiscard]] Keys keys();

  // A new token. The old one is accepted from others for `grace_seconds` more; 0: no longer at all.
  Status RotateToken(std::int64_t grace_seconds);
  // Takes over a token that another member made; the one that was here is accepted for the grace. For a
  // node that is told of a rotation, over an encrypted connection.
  Status InstallToken(const Token& token, std::int64_t grace_seconds);

  // This node's side of TLS, from node.crt, node.key and ca.crt; made once, again when they change (wire/authority.h).
  Result<std::shared_ptr<TlsContext>> Member();

 private:
  Secrets(std::string folder, const Keys& keys) : folder_(std::move(folder)), keys_(keys) {}
  Status Replace(const Token& token, std::int64_t grace_seconds);
  void ReloadIfChanged();

  const std::string folder_;  // empty: none
  std::mutex mutex_;
  Keys keys_;
  struct stat seen_{};
  std::shared_ptr<TlsContext> member_;
  struct stat member_seen_{};
};

// ---- files that hold secrets, for this room ----

// Makes it 0700 with its parents, or checks that it is ours and closed to others.
Status EnsureSecretFolder(const std::string& folder);
// kNotFound if there is none; refuses looser modes than 0600 (0644 if `open_to_read`), other owners and links.
Result<std::string> ReadSecretFile(const std::string& path, bool open_to_read = false);
// A new file, 0600 or 0644, complete and on disk before it has its name. With `exclusive` an existing file
// stays as it is and the answer is false.
Result<bool> WriteSecretFile(const std::string& path, std::string_view text, bool exclusive, mode_t mode = 0600);

// Holds the folder's lock: for read-change-write of a file by several processes.
class FolderLock {
 public:
  static Result<FolderLock> Take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

// What the token file says, or why it is none.
Result<Keys> ParseKeys(std::string_view text);
[[nodiscard]] std::string FormatKeys(const Keys& keys);

}  // namespace manta::wire
