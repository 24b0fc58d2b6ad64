// The cluster's certificate authority, as files in the folder of the secrets (wire/secrets.h).
//
// The head makes it when TLS is first needed: ca.key and ca.crt. Its own certificate and those of nodes that join
// (wire/join.h) are signed by it, for the hosts under which they are reached; every certificate also carries
// the names of loopback, which mean the machine itself. ca.key never leaves the head.
//
// Threads: any; several processes may call at once (under the folder's lock).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "types/status.h"
#include "wire/secrets.h"
#include "wire/tls.h"

namespace manta::wire {

// The folder has ca.key: this is the head, or may become it.
[[nodiscard]] bool HasAuthority(const std::string& folder);
// The folder has a certificate of this node.
[[nodiscard]] bool HasCertificate(const std::string& folder);

// Makes sure that this node has a certificate for these hosts. In a folder that has never joined a cluster it makes the
// authority first; in one that has, a missing host is an error that says so.
Status EnsureCertificate(Secrets& secrets, const std::vector<std::string>& hosts);

// SHA-256 of ca.crt.
Result<Digest> AuthorityFingerprint(const std::string& folder);
// On the head: certifies another node's key.
Result<std::string> SignRequest(const std::string& folder, const std::string& request, std::vector<std::string> hosts);
// What a node got when it joined.
Status StoreCertificate(const std::string& folder, const KeyPair& own, const std::string& authority);
Result<std::string> ReadAuthority(const std::string& folder);

}  // namespace manta::wire
