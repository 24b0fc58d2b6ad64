#include "wire/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace manta::wire {
namespace {

// FNV-1a over 8-byte words: catches torn and overwritten frames, not an adversary.
std::uint32_t Checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x100000001b3ULL;
    hash ^= hash >> 29;
  }
  for (; i < bytes.size(); ++i) hash = (hash ^ static_cast<std::uint64_t>(bytes[i])) * 0x100000001b3ULL;
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

void FrameReader::Add(std::span<const std::byte> bytes, std::vector<base::Fd> fds) {
  if (start_ > 0 && start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
  } else if (start_ > (64U << 10)) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (base::Fd& fd : fds) fds_.push_back(std::move(fd));
}

Result<bool> FrameReader::Next(Frame* frame) {
  const std::size_t have = buffer_.size() - start_;
  if (have < sizeof(FrameHeader)) return false;
  FrameHeader header;
  std::memcpy(&header, buffer_.data() + start_, sizeof header);
  if (header.magic != kFrameMagic) return Status(Code::kCorrupt, "not a frame of this protocol (bad magic)");
  if (header.size > kMaxFrame) {
    return Status(Code::kCorrupt, Cat("a frame of ", Bytes(header.size), " is over the limit of ", Bytes(kMaxFrame)));
  }
  if (header.fds > kMaxFds) return Status(Code::kCorrupt, Cat("a frame with ", header.fds, " descriptors"));
  if (have < sizeof header + header.size) return false;
  if (fds_.size() < header.fds) return Status(Code::kCorrupt, "a frame lacks its descriptors");
  frame->kind = static_cast<Kind>(header.kind);
  frame->call = header.call;
  frame->body.assign(buffer_, start_ + sizeof header, header.size);
  frame->fds.clear();
  for (int i = 0; i < header.fds; ++i) {
    frame->fds.push_back(std::move(fds_.front()));
    fds_.pop_front();
  }
  start_ += sizeof header + header.size;
  if (Checksum(std::as_bytes(std::span(frame->body))) != header.checksum) {
    return Status(Code::kCorrupt, "a frame's checksum is wrong");
  }
  return true;
}

std::string EncodeFrame(Kind kind, std::uint64_t call, std::span<const std::byte> body, std::size_t fds) {
  FrameHeader header;
  header.size = static_cast<std::uint32_t>(body.size());
  header.call = call;
  header.kind = static_cast<std::uint16_t>(kind);
  header.fds = static_cast<std::uint16_t>(fds);
  header.checksum = Checksum(body);
  std::string out(sizeof header + body.size(), '\0');
  std::memcpy(out.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(out.data() + sizeof header, body.data(), body.size());
  return out;
}

std::ptrdiff_t SendOnce(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  for (;;) {
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    if (sent >= 0 || errno != EINTR) return sent;
  }
}

Status SendAll(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  while (!bytes.empty()) {
    const std::ptrdiff_t sent = SendOnce(socket, bytes, fds, 0);
    if (sent < 0) return Status(Code::kUnavailable, Cat("cannot send to the node's daemon: ", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
    fds = {};
  }
  return {};
}

Status Receive(int socket, std::span<std::byte> into, std::size_t* count, std::vector<base::Fd>* fds,
               bool* would_block) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  *count = 0;
  *would_block = false;
  for (;;) {
    iovec part{into.data(), into.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        *would_block = true;
        return {};
      }
      if (errno == ECONNRESET) return {};
      return Status(Code::kUnavailable, Cat("cannot receive: ", std::strerror(errno)));
    }
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < n; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
        fds->push_back(base::Fd(fd));
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return Status(Code::kIo, "descriptors were lost on the way: too few file descriptors; raise `ulimit -n`");
    }
    *count = static_cast<std::size_t>(got);
    return {};
  }
}

}  // namespace manta::wire
