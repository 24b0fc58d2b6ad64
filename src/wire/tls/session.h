// A connection (session.cc), for the contexts that make it.
#pragma once

#include <memory>
#include <string>

#include "wire/tls/openssl.h"

namespace manta::wire::tls {

[[nodiscard]] std::unique_ptr<TlsSession> MakeSession(SSL_CTX* context, int socket, bool accept,
                                                      const std::string& name);

// Whether bulk transfers use our own records: BulkRecordsPay, unless MANTA_TLS_BULK=openssl forbids it. Asked once.
[[nodiscard]] bool BulkRecordsUsed();
// OpenSSL's callback for the traffic secrets (as in SSLKEYLOGFILE), which our own records need. Set only for them.
void NoteSecret(const SSL* ssl, const char* line);

}  // namespace manta::wire::tls
