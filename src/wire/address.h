// Address is where somebody listens: "127.0.0.1:6400", "[::1]:6400", "head.example:6400".
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "types/status.h"

namespace manta::wire {

struct Address {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

// "host:port", "[v6]:port"; a missing or wrong port is an error unless `default_port` is given.
Result<Address> ParseAddress(std::string_view text, int default_port = -1);
[[nodiscard]] std::string ToString(const Address& address);

// One address of a socket, IPv4 or IPv6.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] bool loopback() const;  // 127/8, ::1, or the former mapped into IPv6
  [[nodiscard]] bool any() const;       // 0.0.0.0, ::
  [[nodiscard]] std::string host() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string text() const;  // "127.0.0.1:6400"
};

[[nodiscard]] SocketAddress LocalOf(int socket);
[[nodiscard]] SocketAddress PeerOf(int socket);

// Numbers and "localhost" at once; other names ask the resolver, which may block for seconds: not from a loop.
Result<std::vector<SocketAddress>> Resolve(const Address& address);

// Under what a certificate of this machine is to be known when it listens at `address`: that host; for "any", all
// addresses of the machine and its name.
[[nodiscard]] std::vector<std::string> NamesFor(const SocketAddress& address, std::string_view host);

// Where other machines reach a socket that is bound to `bound`. That address itself; for "any", the one that the
// default route uses, else the first of an interface beyond loopback, else loopback. [::] takes IPv4, too, and stands
// for an IPv4 address where the machine has no IPv6 one.
[[nodiscard]] SocketAddress ReachedAt(const SocketAddress& bound);

}  // namespace manta::wire
