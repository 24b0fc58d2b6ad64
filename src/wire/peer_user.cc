#include "wire/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/fd.h"

namespace manta::wire {
namespace {

// Port and address in network order, as the kernel wants them.
void Fill(const SocketAddress& from, __be16* port, __be32* address) {
  if (from.storage.ss_family == AF_INET) {
    const auto* const four = reinterpret_cast<const sockaddr_in*>(&from.storage);
    *port = four->sin_port;
    std::memcpy(address, &four->sin_addr, sizeof four->sin_addr);
  } else {
    const auto* const six = reinterpret_cast<const sockaddr_in6*>(&from.storage);
    *port = six->sin6_port;
    std::memcpy(address, &six->sin6_addr, sizeof six->sin6_addr);
  }
}

}  // namespace

std::optional<uid_t> PeerUser(const SocketAddress& local, const SocketAddress& peer) {
  if (local.size == 0 || peer.size == 0 || local.storage.ss_family != peer.storage.ss_family) return std::nullopt;
  const base::Fd netlink(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid()) return std::nullopt;
  struct {
    nlmsghdr header{};
    inet_diag_req_v2 body{};
  } request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = static_cast<__u8>(local.storage.ss_family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  request.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  Fill(peer, &request.body.id.idiag_sport, request.body.id.idiag_src);
  Fill(local, &request.body.id.idiag_dport, request.body.id.idiag_dst);
  if (send(netlink.get(), &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request)) return std::nullopt;
  // The kernel has answered by the time send returns; without its module for TCP, with an error.
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t got = recv(netlink.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  nlmsghdr header{};
  inet_diag_msg body{};
  if (got < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof body)) return std::nullopt;
  std::memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  std::memcpy(&body, answer.data() + NLMSG_HDRLEN, sizeof body);
  return body.idiag_uid;
}

}  // namespace manta::wire
