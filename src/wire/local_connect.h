// Connections to Unix sockets of this machine, and the check of the user at their other end.
//
// Any user may bind any abstract name, also "@manta-<uid>-<n>" of somebody else. A name therefore proves nothing: every
// client asks the kernel for the peer's user (SO_PEERCRED) before it sends or reads a byte. The kernel records the user
// when the peer calls listen() or socketpair(), so the peer cannot change it later, and a relay shows the relay's user.
//
// Threads: any.
#pragma once

#include <string>

#include "base/fd.h"
#include "types/status.h"

namespace manta::wire {

// kInvalid, with both users by name, unless the peer of this Unix socket has our effective user id. `what` names the
// socket: "address @manta-1000-4711".
[[nodiscard]] Status CheckPeerUser(int socket, const std::string& what);

// A blocking connection to the abstract socket "@name" of a process of this user. kInvalid: this is no such address, or
// another user serves it; kUnavailable: no process listens there.
[[nodiscard]] Result<base::Fd> ConnectToLocal(const std::string& address);

}  // namespace manta::wire
