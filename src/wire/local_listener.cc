#include "wire/local_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "wire/local_connect.h"

namespace manta::wire {

Result<std::unique_ptr<LocalListener>> LocalListener::Listen(base::Loop& loop, const std::string& address,
                                                             std::string who, OnAccept on_accept) {
  sockaddr_un name{};
  if (address.size() < 2 || address[0] != '@' || address.size() > sizeof name.sun_path) {
    return Status(Code::kInvalid, Cat("'", address, "' is no address on this machine: give '@' and a name of up to ",
                                      sizeof name.sun_path - 1, " characters"));
  }
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data() + 1, address.size() - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  std::unique_ptr<LocalListener> listener(new LocalListener(loop, std::move(who), std::move(on_accept)));
  listener->socket_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  listener->spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fd = listener->socket_.get();
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&name), length) != 0 || listen(fd, 256) != 0) {
    if (errno == EADDRINUSE)
      return Status(
          Code::kUnavailable,
          Cat("address ", address, " is taken: another process listens there; stop it, or choose another --address"));
    return Status(Code::kIo, Cat("cannot listen at ", address, ": ", std::strerror(errno)));
  }
  if (Status status = loop.Watch(fd, EPOLLIN, [raw = listener.get()](std::uint32_t) { raw->Accept(); }); !status.ok()) {
    return status;
  }
  return listener;
}

LocalListener::~LocalListener() {
  if (socket_.valid()) loop_.Unwatch(socket_.get());
}

void LocalListener::Accept() {
  for (;;) {
    base::Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE) return;
      // Whoever knocks is turned away rather than kept waiting, and this loop kept busy.
      std::fprintf(stderr, "%s: out of file descriptors, a connection is refused; raise `ulimit -n`\n", who_.c_str());
      spare_.Reset(-1);
      socket.Reset(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      socket.Reset(-1);
      spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!spare_.valid()) return;
      continue;
    }
    if (!CheckPeerUser(socket.get(), "a connection").ok()) continue;
    on_accept_(std::move(socket));
  }
}

}  // namespace manta::wire
