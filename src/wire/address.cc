#include "wire/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>

#include "base/fd.h"

namespace manta::wire {

Result<Address> ParseAddress(std::string_view text, int default_port) {
  const Status bad(Code::kInvalid,
                   Cat("'", std::string(text), "' is not an address: give HOST:PORT, for IPv6 [HOST]:PORT"));
  Address address;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad;
    address.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty()) {
      if (port[0] != ':' || port.size() == 1) return bad;
      port.remove_prefix(1);
    }
  } else {
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) return bad;
    address.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return bad;
    }
  }
  if (address.host.empty()) return bad;
  if (port.empty()) {
    if (default_port < 0) return bad;
    address.port = static_cast<std::uint16_t>(default_port);
    return address;
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return bad;
  return address;
}

std::string ToString(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? Cat("[", address.host, "]:", address.port) : Cat(address.host, ":", address.port);
}

namespace {

const in6_addr& V6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
}
std::uint32_t V4(const sockaddr_storage& storage) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr);
}

}  // namespace

bool SocketAddress::loopback() const {
  if (storage.ss_family == AF_INET) return V4(storage) >> 24 == 127;
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& six = V6(storage);
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool SocketAddress::any() const {
  if (storage.ss_family == AF_INET) return V4(storage) == 0;
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& six = V6(storage);
  return IN6_IS_ADDR_UNSPECIFIED(&six) ||
         (IN6_IS_ADDR_V4MAPPED(&six) && std::all_of(six.s6_addr + 12, six.s6_addr + 16, [](auto b) { return b == 0; }));
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 2] = "";
  if (getnameinfo(get(), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

std::uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

std::string SocketAddress::text() const { return ToString(Address{host(), port()}); }

SocketAddress LocalOf(int socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (getsockname(socket, address.get(), &address.size) != 0) address.size = 0;
  return address;
}

SocketAddress PeerOf(int socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (getpeername(socket, address.get(), &address.size) != 0) address.size = 0;
  return address;
}

Result<std::vector<SocketAddress>> Resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  const std::string port = Cat(address.port);
  // Not left to the resolver, whose files may say anything.
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error == EAI_NONAME) {
    hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
    error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  }
  if (error != 0) {
    return Status(Code::kUnavailable, Cat("cannot find the address of '", address.host,
                                          "': ", error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress one;
    std::memcpy(&one.storage, entry->ai_addr, entry->ai_addrlen);
    one.size = entry->ai_addrlen;
    addresses.push_back(one);
  }
  if (addresses.empty()) return Status(Code::kUnavailable, Cat("'", address.host, "' has no address"));
  return addresses;
}

std::vector<std::string> NamesFor(const SocketAddress& address, std::string_view host) {
  std::vector<std::string> names;
  if (!address.any()) {
    names.emplace_back(host);
    if (address.host() != host) names.push_back(address.host());
    return names;
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, &freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr) continue;
      const int family = entry->ifa_addr->sa_family;
      if (family != AF_INET && family != AF_INET6) continue;
      SocketAddress one;
      one.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&one.storage, entry->ifa_addr, one.size);
      if (one.loopback()) continue;
      std::string text = one.host();
      text.resize(std::min(text.find('%'), text.size()));  // a certificate knows no interface
      names.push_back(std::move(text));
    }
  }
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof name - 1) == 0 && name[0] != '\0') names.emplace_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

namespace {

void SetPort(std::uint16_t port, SocketAddress* address) {
  if (address->storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address->storage)->sin6_port = htons(port);
  }
}

bool LinkLocal(const SocketAddress& address) {
  if (address.storage.ss_family != AF_INET6) return false;
  const in6_addr& six = V6(address.storage);
  return IN6_IS_ADDR_LINKLOCAL(&six);
}

// Asks the routing table, with an address of documentation as the target. Connecting a UDP socket sends nothing.
std::optional<SocketAddress> OnDefaultRoute(int family) {
  const Result<std::vector<SocketAddress>> target =
      Resolve(Address{family == AF_INET ? "192.0.2.1" : "2001:db8::1", 9});
  if (!target.ok()) return std::nullopt;
  const base::Fd probe(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || connect(probe.get(), target.value().front().get(), target.value().front().size) != 0)
    return std::nullopt;
  const SocketAddress found = LocalOf(probe.get());
  if (found.loopback() || found.any() || LinkLocal(found)) return std::nullopt;
  return found;
}

std::optional<SocketAddress> OnFirstInterface(int family) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    SocketAddress one;
    one.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&one.storage, entry->ifa_addr, one.size);
    if (!one.loopback() && !LinkLocal(one)) return one;
  }
  return std::nullopt;
}

}  // namespace

SocketAddress ReachedAt(const SocketAddress& bound) {
  if (!bound.any()) return bound;
  const in6_addr& six = V6(bound.storage);
  const bool both = bound.storage.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&six);
  std::optional<SocketAddress> found;
  if (both) found = OnDefaultRoute(AF_INET6);
  if (both && !found) found = OnFirstInterface(AF_INET6);
  if (!found) found = OnDefaultRoute(AF_INET);
  if (!found) found = OnFirstInterface(AF_INET);
  if (!found) found = Resolve(Address{"127.0.0.1", 0}).value().front();
  SetPort(bound.port(), &*found);
  return *found;
}

}  // namespace manta::wire
