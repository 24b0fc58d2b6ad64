// Whose socket the other end of a TCP connection within this machine is: what peer credentials are to Unix sockets.
//
// The token proves that somebody who has it is at the other end, not that nobody sits between. Another user could
// listen at a port that a daemon of ours has left, and pass the handshake of whoever still dials it on to a live one.
// The listener finds out: the connection that reaches it belongs to that user.
#pragma once

#include <sys/types.h>

#include <optional>

#include "wire/address.h"

namespace manta::wire {

// The owner of the socket at `peer` that is connected to `local`. None: the kernel does not say, or the peer is not
// here.
[[nodiscard]] std::optional<uid_t> PeerUser(const SocketAddress& local, const SocketAddress& peer);

}  // namespace manta::wire
