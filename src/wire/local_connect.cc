#include "wire/local_connect.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace manta::wire {
namespace {

std::string UserName(uid_t uid) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? Cat("user ", uid) : Cat("user ", found->pw_name, " (", uid, ")");
}

}  // namespace

Status CheckPeerUser(int socket, const std::string& what) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Status(Code::kInvalid, Cat("cannot tell which user serves ", what, ": ", std::strerror(errno)));
  }
  if (peer.uid == geteuid()) return {};
  return Status(Code::kInvalid, Cat(what, " is served by ", UserName(peer.uid), ", pid ", peer.pid, ", not by ",
                                    UserName(geteuid()), ": refused; use a cluster that you started yourself"));
}

Result<base::Fd> ConnectToLocal(const std::string& address) {
  sockaddr_un name{};
  if (address.size() < 2 || address[0] != '@' || address.size() > sizeof name.sun_path) {
    return Status(Code::kInvalid,
                  Cat("'", address, "' is not an address; `manta status` shows them, as in @manta-1000-4711"));
  }
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data() + 1, address.size() - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Status(Code::kIo, Cat("cannot make a socket: ", std::strerror(errno)));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    return Status(Code::kUnavailable, std::strerror(errno));
  }
  if (Status status = CheckPeerUser(socket.get(), Cat("address ", address)); !status.ok()) return status;
  return socket;
}

}  // namespace manta::wire
