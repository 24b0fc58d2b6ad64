#include "wire/authority.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace manta::wire {
namespace {

std::string File(const std::string& folder, const char* name) { return Cat(folder, "/", name); }

Result<KeyPair> ReadPair(const std::string& folder, const char* certificate, const char* key) {
  Result<std::string> first = ReadSecretFile(File(folder, certificate), true);
  if (!first.ok()) return first.status();
  Result<std::string> second = ReadSecretFile(File(folder, key));
  if (!second.ok()) return second.status();
  return KeyPair{std::move(*first), std::move(*second)};
}

// The key first: a certificate without its key is worth nothing, and its presence says that all is there.
Status WritePair(const std::string& folder, const KeyPair& pair, const char* certificate, const char* key) {
  Result<bool> made = WriteSecretFile(File(folder, key), pair.key, false);
  if (made.ok()) made = WriteSecretFile(File(folder, certificate), pair.certificate, false, 0644);
  return made.status();
}

void AddLoopback(std::vector<std::string>& hosts) {
  for (const char* const host : {"127.0.0.1", "::1", "localhost"}) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.emplace_back(host);
  }
}

// One certificate for all hosts it ever needed, so that a head that listens at another address stays reachable at the
// first.
Status IssueOwn(const std::string& folder, TlsLibrary& library, std::vector<std::string> hosts) {
  const Result<KeyPair> request = library.MakeRequest("manta node");
  if (!request.ok()) return request.status();
  const Result<std::string> certificate = SignRequest(folder, request.value().certificate, std::move(hosts));
  if (!certificate.ok()) return certificate.status();
  return WritePair(folder, KeyPair{certificate.value(), request.value().key}, "node.crt", "node.key");
}

}  // namespace

bool HasAuthority(const std::string& folder) { return access(File(folder, "ca.key").c_str(), F_OK) == 0; }
bool HasCertificate(const std::string& folder) { return access(File(folder, "node.crt").c_str(), F_OK) == 0; }

Status EnsureCertificate(Secrets& secrets, const std::vector<std::string>& hosts) {
  const std::string& folder = secrets.folder();
  if (folder.empty()) return Status(Code::kInvalid, "TLS needs a folder for the cluster's certificates");
  const Result<FolderLock> lock = FolderLock::Take(folder);
  if (!lock.ok()) return lock.status();
  const Result<TlsLibrary*> library = LoadTls();
  if (!library.ok()) return library.status();
  std::vector<std::string> wanted = hosts;
  AddLoopback(wanted);
  if (HasCertificate(folder)) {
    const Result<KeyPair> own = ReadPair(folder, "node.crt", "node.key");
    if (!own.ok()) return own.status();
    const Result<std::vector<std::string>> has = library.value()->Hosts(own.value().certificate);
    if (!has.ok()) return has.status();
    std::string missing;
    for (const std::string& host : wanted) {
      if (std::find(has.value().begin(), has.value().end(), host) == has.value().end()) missing += Cat(" ", host);
    }
    if (missing.empty()) return {};
    if (!HasAuthority(folder)) {
      return Status(Code::kInvalid, Cat("this node's certificate does not name", missing,
                                        ": join the cluster again with these addresses to get one that does"));
    }
    for (const std::string& host : has.value()) {
      if (std::find(wanted.begin(), wanted.end(), host) == wanted.end()) wanted.push_back(host);
    }
  }
  if (!HasAuthority(folder)) {
    if (access(File(folder, "ca.crt").c_str(), F_OK) == 0) {
      return Status(Code::kInvalid, Cat(folder,
                                        " holds the certificate of an authority but neither its key nor a "
                                        "certificate of this node: join the cluster again"));
    }
    const Result<KeyPair> authority =
        library.value()->MakeAuthority(Cat("manta cluster ", ToHex(secrets.keys().cluster)));
    if (!authority.ok()) return authority.status();
    if (Status status = WritePair(folder, authority.value(), "ca.crt", "ca.key"); !status.ok()) return status;
  }
  return IssueOwn(folder, *library.value(), std::move(wanted));
}

Result<Digest> AuthorityFingerprint(const std::string& folder) {
  const Result<std::string> certificate = ReadAuthority(folder);
  if (!certificate.ok()) return certificate.status();
  const Result<TlsLibrary*> library = LoadTls();
  if (!library.ok()) return library.status();
  return library.value()->Fingerprint(certificate.value());
}

Result<std::string> SignRequest(const std::string& folder, const std::string& request, std::vector<std::string> hosts) {
  const Result<TlsLibrary*> library = LoadTls();
  if (!library.ok()) return library.status();
  Result<KeyPair> authority = ReadPair(folder, "ca.crt", "ca.key");
  if (!authority.ok()) return authority.status();
  AddLoopback(hosts);
  Result<std::string> certificate = library.value()->Sign(authority.value(), request, hosts);
  Wipe(std::as_writable_bytes(std::span(authority->key)));
  return certificate;
}

Result<std::string> ReadAuthority(const std::string& folder) { return ReadSecretFile(File(folder, "ca.crt"), true); }

Status StoreCertificate(const std::string& folder, const KeyPair& own, const std::string& authority) {
  const Result<TlsLibrary*> library = LoadTls();
  if (!library.ok()) return library.status();
  if (Status status = library.value()->Check(own, authority); !status.ok()) return status;
  const Result<bool> made = WriteSecretFile(File(folder, "ca.crt"), authority, false, 0644);
  if (!made.ok()) return made.status();
  return WritePair(folder, own, "node.crt", "node.key");
}

Result<std::shared_ptr<TlsContext>> Secrets::Member() {
  if (folder_.empty() || !HasCertificate(folder_)) {
    return Status(Code::kInvalid,
                  Cat("beyond this machine connections need TLS, and there is no certificate of this node in ",
                      folder_.empty() ? "memory" : folder_,
                      "; start the head with TLS (--tls), or join the cluster with a join token"));
  }
  const std::lock_guard lock(mutex_);
  struct stat now{};
  stat(File(folder_, "node.crt").c_str(), &now);
  if (member_ && now.st_ino == member_seen_.st_ino && now.st_mtim.tv_sec == member_seen_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == member_seen_.st_mtim.tv_nsec) {
    return member_;
  }
  Result<KeyPair> own = ReadPair(folder_, "node.crt", "node.key");
  if (!own.ok()) return own.status();
  const Result<std::string> authority = ReadAuthority(folder_);
  if (!authority.ok()) return authority.status();
  const Result<TlsLibrary*> library = LoadTls();
  if (!library.ok()) return library.status();
  Result<std::unique_ptr<TlsContext>> context = library.value()->Member(own.value(), authority.value());
  Wipe(std::as_writable_bytes(std::span(own->key)));
  if (!context.ok()) return context.status();
  member_ = std::move(*context);
  member_seen_ = now;
  return member_;
}

}  // namespace manta::wire
