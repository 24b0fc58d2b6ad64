#include "wire/secrets.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/fd.h"

namespace manta::wire {
namespace {

constexpr std::string_view kFormat = "manta 1";
constexpr std::size_t kMaxFile = 64U << 10;

Status Failed(std::string_view what, const std::string& path, int error) {
  const Code code = error == ENOENT ? Code::kNotFound : Code::kIo;
  return Status(code, Cat("cannot ", what, " ", path, ": ", std::strerror(error)));
}

std::string ModeText(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777U));
  return text;
}

Status CheckOwner(const std::string& path, const struct stat& info) {
  if (info.st_uid == geteuid()) return {};
  return Status(Code::kInvalid, Cat(path, " belongs to user ", info.st_uid, ", not to user ", geteuid(),
                                    " who runs this: use a folder of your own, or `chown ", geteuid(), " ", path, "`"));
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const base::Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return Failed("sync", folder, errno);
  return {};
}

bool NextLine(std::string_view& text, std::string_view* line) {
  if (text.empty()) return false;
  const std::size_t end = text.find('\n');
  *line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return true;
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::int64_t UnixNow() { return static_cast<std::int64_t>(std::time(nullptr)); }

KeyId IdOf(const Token& key) {
  const Digest digest = Hash({BytesOf("manta key id"), key});
  KeyId id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

// ---- files ----

Status EnsureSecretFolder(const std::string& folder) {
  if (folder.empty()) {
    return Status(Code::kInvalid,
                  "no folder for the cluster's secrets: neither XDG_STATE_HOME nor HOME is set; name a folder");
  }
  for (std::size_t at = folder.find('/', 1);; at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return Failed("make the folder", part, errno);
    if (at == std::string::npos) break;
  }
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0) return Failed("look at", folder, errno);
  if (!S_ISDIR(info.st_mode)) return Status(Code::kInvalid, Cat(folder, " is not a folder"));
  if (Status status = CheckOwner(folder, info); !status.ok()) return status;
  if ((info.st_mode & 077U) != 0) {
    return Status(Code::kInvalid, Cat("the folder ", folder, " of the cluster's secrets has mode ",
                                      ModeText(info.st_mode), ": others may enter it; run `chmod 700 ", folder, "`"));
  }
  return {};
}

Result<std::string> ReadSecretFile(const std::string& path, bool open_to_read) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    if (errno == ELOOP)
      return Status(Code::kInvalid, Cat(path, " is a symbolic link: secrets are not read through one"));
    return Failed("read", path, errno);
  }
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return Failed("look at", path, errno);
  if (!S_ISREG(info.st_mode)) return Status(Code::kInvalid, Cat(path, " is not a plain file"));
  if (Status status = CheckOwner(path, info); !status.ok()) return status;
  if ((info.st_mode & (open_to_read ? 022U : 077U)) != 0) {
    return Status(Code::kInvalid,
                  Cat(path, " has mode ", ModeText(info.st_mode), ": others may ", open_to_read ? "write" : "read",
                      " it; run `chmod 600 ", path, "`", open_to_read ? "" : " and rotate what it holds"));
  }
  std::string text(static_cast<std::size_t>(std::min<off_t>(info.st_size, kMaxFile)), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path, errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

Result<bool> WriteSecretFile(const std::string& path, std::string_view text, bool exclusive, mode_t mode) {
  // Under a random name first, so that nobody ever reads half a file, also after a power failure.
  const std::string temporary = Cat(path, ".", ToHexText(RandomBytes<8>()));
  base::Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Failed("make", temporary, errno);
  Status status;
  while (!text.empty() && status.ok()) {
    const ssize_t count = write(fd.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      status = Failed("write", temporary, errno);
    } else {
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  // Whatever the umask: the mode is a promise.
  if (status.ok() && (fchmod(fd.get(), mode) != 0 || fsync(fd.get()) != 0)) status = Failed("sync", temporary, errno);
  bool made = true;
  if (status.ok()) {
    // link() never replaces: the name is taken by exactly one of several writers.
    if (exclusive && link(temporary.c_str(), path.c_str()) != 0) {
      made = false;
      if (errno != EEXIST) status = Failed("make", path, errno);
    } else if (!exclusive && rename(temporary.c_str(), path.c_str()) != 0) {
      status = Failed("replace", path, errno);
    }
  }
  if (exclusive || !status.ok()) unlink(temporary.c_str());
  if (status.ok()) status = SyncFolderOf(path);
  if (!status.ok()) return status;
  return made;
}

Result<FolderLock> FolderLock::Take(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open", folder, errno);
  FolderLock lock(fd);
  while (flock(fd, LOCK_EX) != 0) {
    if (errno != EINTR) return Failed("lock", folder, errno);
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

// ---- the token file ----

std::string FormatKeys(const Keys& keys) {
  std::string text = Cat(kFormat, "\ncluster ", ToHex(keys.cluster), "\ntoken ", ToHexText(keys.token), "\n");
  if (keys.has_previous) text += Cat("previous ", ToHexText(keys.previous), " ", keys.previous_until, "\n");
  return text;
}

Result<Keys> ParseKeys(std::string_view text) {
  const Status bad(Code::kCorrupt, "not a token file of this version (expected `manta 1`, cluster, token)");
  Keys keys;
  std::string_view line;
  if (!NextLine(text, &line) || line != kFormat) return bad;
  if (!NextLine(text, &line) || !TakePrefix(line, "cluster ") || !FromHex(std::string(line), &keys.cluster)) return bad;
  if (!NextLine(text, &line) || !TakePrefix(line, "token ") || !FromHexText(line, keys.token)) return bad;
  if (NextLine(text, &line)) {
    if (!TakePrefix(line, "previous ") || line.size() < 66 || line[64] != ' ') return bad;
    if (!FromHexText(line.substr(0, 64), keys.previous)) return bad;
    line.remove_prefix(65);
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), keys.previous_until);
    if (error != std::errc() || end != line.data() + line.size()) return bad;
    keys.has_previous = true;
  }
  if (!text.empty() || keys.cluster.empty()) return bad;
  return keys;
}

// ---- Secrets ----

std::string Secrets::DefaultFolder() {
  if (const char* said = std::getenv("MANTA_SECRETS"); said != nullptr && *said != '\0') return said;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') return Cat(state, "/manta");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return Cat(home, "/.manta");
  return {};
}

Result<std::shared_ptr<Secrets>> Secrets::Open(const std::string& folder) {
  struct stat info{};
  if (!folder.empty() && stat(folder.c_str(), &info) != 0 && errno == ENOENT) {
    return Status(Code::kNotFound, Cat("no cluster is known here: there is no folder ", folder,
                                       "; run `manta start --head`, or join one with `manta start --join ADDRESS`"));
  }
  if (Status status = EnsureSecretFolder(folder); !status.ok()) return status;
  const std::string path = Cat(folder, "/", kTokenFile);
  Result<std::string> text = ReadSecretFile(path);
  if (!text.ok()) {
    if (text.status().code() != Code::kNotFound) return text.status();
    return Status(Code::kNotFound, Cat("no cluster is known here: there is no file ", path,
                                       "; run `manta start --head`, or join one with `manta start --join ADDRESS`"));
  }
  const Result<Keys> keys = ParseKeys(*text);
  Wipe(std::as_writable_bytes(std::span(*text)));
  if (!keys.ok()) return Status(keys.status().code(), Cat(path, ": ", keys.status().message()));
  auto secrets = std::shared_ptr<Secrets>(new Secrets(folder, keys.value()));
  stat(path.c_str(), &secrets->seen_);
  return secrets;
}

Result<std::shared_ptr<Secrets>> Secrets::OpenOrCreate(const std::string& folder) {
  if (Status status = EnsureSecretFolder(folder); !status.ok()) return status;
  Result<std::shared_ptr<Secrets>> there = Open(folder);
  if (there.ok() || there.status().code() != Code::kNotFound) return there;
  Keys keys;
  FillRandom(std::as_writable_bytes(std::span(&keys.cluster, 1)));
  keys.cluster.lo |= 1;  // never empty
  FillRandom(keys.token);
  std::string text = FormatKeys(keys);
  const Result<bool> made = WriteSecretFile(Cat(folder, "/", kTokenFile), text, true);
  Wipe(std::as_writable_bytes(std::span(text)));
  Wipe(keys.token);
  if (!made.ok()) return made.status();
  return Open(folder);  // ours, or that of who was faster
}

std::shared_ptr<Secrets> Secrets::FromKeys(const Keys& keys) { return std::shared_ptr<Secrets>(new Secrets({}, keys)); }

Secrets::~Secrets() {
  Wipe(keys_.token);
  Wipe(keys_.previous);
}

Keys Secrets::keys() {
  const std::lock_guard lock(mutex_);
  ReloadIfChanged();
  return keys_;
}

void Secrets::ReloadIfChanged() {
  if (folder_.empty()) return;
  const std::string path = Cat(folder_, "/", kTokenFile);
  struct stat now{};
  if (stat(path.c_str(), &now) != 0) return;
  if (now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev && now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec) {
    return;
  }
  const Result<std::string> text = ReadSecretFile(path);
  if (!text.ok()) return;
  const Result<Keys> keys = ParseKeys(text.value());
  if (!keys.ok()) return;
  keys_ = keys.value();
  seen_ = now;
}

Status Secrets::RotateToken(std::int64_t grace_seconds) { return Replace(RandomBytes<32>(), grace_seconds); }

Status Secrets::InstallToken(const Token& token, std::int64_t grace_seconds) { return Replace(token, grace_seconds); }

Status Secrets::Replace(const Token& token, std::int64_t grace_seconds) {
  const std::lock_guard guard(mutex_);
  // Two rotations at once must not lose each other's `previous`.
  std::optional<FolderLock> lock;
  if (!folder_.empty()) {
    Result<FolderLock> taken = FolderLock::Take(folder_);
    if (!taken.ok()) return taken.status();
    lock.emplace(std::move(*taken));
  }
  ReloadIfChanged();
  if (SameSecret(token, keys_.token)) return {};
  Keys next = keys_;
  next.token = token;
  next.has_previous = grace_seconds > 0;
  next.previous = next.has_previous ? keys_.token : Token{};
  next.previous_until = next.has_previous ? UnixNow() + grace_seconds : 0;
  if (!folder_.empty()) {
    const std::string path = Cat(folder_, "/", kTokenFile);
    std::string text = FormatKeys(next);
    const Result<bool> made = WriteSecretFile(path, text, false);
    Wipe(std::as_writable_bytes(std::span(text)));
    if (!made.ok()) return made.status();
    stat(path.c_str(), &seen_);
  }
  keys_ = next;
  return {};
}

}  // namespace manta::wire
