// The doors of a cluster as a stranger finds them: everything that its processes listen at, by looking at what they
// have open and not by a list; and ways to knock there: with every message there is, half of one, or none of ours, from
// where the door is and as another user.
//
// Knows the protocol as a stranger would who has our headers (scripts/layering).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "fixture.h"
#include "hosts.h"
#include "wire/all_messages.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace manta::testing {

// ---- what listens ----

struct Door {
  std::string kind;   // tcp, unix, or what nobody expects
  std::string where;  // "127.0.0.1:6400", "@manta-0-4711"
  pid_t pid = 0;
  std::string process;

  [[nodiscard]] std::string text() const { return process + " (" + std::to_string(pid) + "), " + kind + " " + where; }
  [[nodiscard]] std::string network() const { return "/proc/" + std::to_string(pid) + "/ns/net"; }
};

inline std::set<std::uint64_t> SocketsIn(pid_t pid) {
  std::set<std::uint64_t> inodes;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return inodes;
  while (const dirent* item = readdir(dir)) {
    char target[64] = {};
    if (readlink((folder + "/" + item->d_name).c_str(), target, sizeof target - 1) <= 0) continue;
    if (std::strncmp(target, "socket:[", 8) == 0) inodes.insert(std::strtoull(target + 8, nullptr, 10));
  }
  closedir(dir);
  return inodes;
}

// "0100007F:1900" and "00000000…:1900" as the kernel writes them: words in the machine's order.
inline std::string HostAndPort(const std::string& hex) {
  const std::size_t colon = hex.find(':');
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i * 8 < colon; ++i) {
    words[i] = static_cast<std::uint32_t>(std::stoul(hex.substr(i * 8, 8), nullptr, 16));
  }
  char text[INET6_ADDRSTRLEN] = {};
  const bool four = colon == 8;
  const bool any = words == std::array<std::uint32_t, 4>{};
  if (any) {
    std::strcpy(text, four ? "127.0.0.1" : "::1");
  } else {
    inet_ntop(four ? AF_INET : AF_INET6, words.data(), text, sizeof text);
  }
  const std::string host = four ? std::string(text) : "[" + std::string(text) + "]";
  return host + ":" + std::to_string(std::stoul(hex.substr(colon + 1), nullptr, 16));
}

inline std::vector<std::vector<std::string>> Table(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : Lines(ReadFile(path))) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  if (!rows.empty()) rows.erase(rows.begin());  // the title
  return rows;
}

// The marked processes and all that they have started, whatever environment that was given.
inline std::vector<Process> Family(const std::string& mark) {
  std::vector<Process> family = Marked(mark);
  std::set<pid_t> known;
  for (const Process& process : family) known.insert(process.pid);
  for (bool more = true; more;) {
    more = false;
    DIR* folder = opendir("/proc");
    if (folder == nullptr) return family;
    while (const dirent* item = readdir(folder)) {
      const pid_t pid = std::atoi(item->d_name);
      if (pid <= 0 || known.contains(pid)) continue;
      const Process process = LookAt(pid);
      if (!known.contains(process.parent) || !Alive(pid)) continue;
      known.insert(pid);
      family.push_back(process);
      more = true;
    }
    closedir(folder);
  }
  return family;
}

// All sockets of these processes at which somebody else could knock.
inline std::vector<Door> DoorsOf(const std::vector<Process>& processes) {
  std::vector<Door> doors;
  for (const Process& process : processes) {
    const std::set<std::uint64_t> own = SocketsIn(process.pid);
    const std::string net = "/proc/" + std::to_string(process.pid) + "/net/";
    const auto add = [&](const std::string& kind, const std::string& where) {
      doors.push_back({kind, where, process.pid, process.name});
    };
    for (const char* kind : {"tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6"}) {
      for (const std::vector<std::string>& row : Table(net + kind)) {
        if (row.size() < 10 || !own.contains(std::stoull(row[9]))) continue;
        const bool tcp = std::string(kind).starts_with("tcp");
        if (tcp && row[3] != "0A") continue;  // not listening
        add(tcp ? "tcp" : kind, HostAndPort(row[1]));
      }
    }
    for (const std::vector<std::string>& row : Table(net + "packet")) {
      if (row.size() >= 9 && own.contains(std::stoull(row[8]))) add("packet", row[3]);
    }
    for (const std::vector<std::string>& row : Table(net + "unix")) {
      if (row.size() < 7 || !own.contains(std::stoull(row[6]))) continue;
      const bool listens = (std::stoul(row[3], nullptr, 16) & 0x10000) != 0;
      const bool stream = row[4] == "0001";
      const std::string name = row.size() > 7 ? row[7] : std::string();
      if (listens) {
        add("unix", name);
      } else if (!stream && !name.empty()) {
        add("unix of type " + row[4], name);
      }
    }
  }
  return doors;
}

// ---- knocking ----

inline int Connect(const Door& door) {
  if (door.kind == "unix") {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, door.where.data(), std::min(door.where.size(), sizeof name.sun_path));
    if (door.where[0] == '@') name.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + door.where.size());
    if (connect(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0) return fd;
    close(fd);
    return -1;
  }
  const std::size_t colon = door.where.rfind(':');
  std::string host = door.where.substr(0, colon);
  const auto port = htons(static_cast<std::uint16_t>(std::stoul(door.where.substr(colon + 1))));
  sockaddr_in four{};
  sockaddr_in6 six{};
  const bool bracket = host[0] == '[';
  if (bracket) host = host.substr(1, host.size() - 2);
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port = port;
  six.sin6_family = AF_INET6;
  inet_pton(AF_INET, host.c_str(), &four.sin_addr);
  inet_pton(AF_INET6, host.c_str(), &six.sin6_addr);
  const int fd = socket(bracket ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int result = bracket ? connect(fd, reinterpret_cast<const sockaddr*>(&six), sizeof six)
                             : connect(fd, reinterpret_cast<const sockaddr*>(&four), sizeof four);
  if (result == 0) return fd;
  close(fd);
  return -1;
}

struct Answer {
  std::string bytes;
  bool closed = false;
};

// All that comes until the other side closes, or the time is over.
inline Answer Listen(int fd, std::chrono::milliseconds limit) {
  Answer answer;
  const auto end = Clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) return answer;
    char buffer[4096];
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) {
      answer.closed = true;
      return answer;
    }
    answer.bytes.append(buffer, static_cast<std::size_t>(got));
  }
}

inline Answer Knock(const Door& door, const std::string& bytes, std::chrono::milliseconds limit) {
  const int fd = Connect(door);
  if (fd < 0) return {{}, true};
  send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const Answer answer = Listen(fd, limit);
  close(fd);
  return answer;
}

// Nothing, or messages of the handshake that give nothing away: Challenge (2) and Refused (5).
inline bool Harmless(std::string_view bytes) {
  while (!bytes.empty()) {
    if (bytes.size() < wire::kLinkHeader) return false;
    if (!std::equal(wire::kLinkMagic.begin(), wire::kLinkMagic.end(), bytes.begin())) return false;
    if (bytes[8] != 2 && bytes[8] != 5) return false;
    std::uint16_t size = 0;
    std::memcpy(&size, bytes.data() + 10, sizeof size);
    if (bytes.size() < wire::kLinkHeader + size) return false;
    bytes.remove_prefix(wire::kLinkHeader + size);
  }
  return true;
}

struct Attempt {
  std::string what;
  std::string bytes;
};

inline std::string HandshakeMessage(std::uint8_t type, const std::string& body, int size = -1) {
  std::string out(wire::kLinkMagic.begin(), wire::kLinkMagic.end());
  out += static_cast<char>(type);
  out += '\0';
  const auto length = static_cast<std::uint16_t>(size < 0 ? static_cast<int>(body.size()) : size);
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return out + body;
}

inline std::string HelloOf(int role, const wire::KeyId& key, std::uint16_t version = 1) {
  std::string body(64, '\x5a');
  std::memcpy(body.data(), &version, 2);
  std::memcpy(body.data() + 2, &version, 2);
  body[4] = static_cast<char>(role);
  std::memset(body.data() + 8, 0, 16);  // any cluster
  std::memcpy(body.data() + 24, key.data(), key.size());
  return HandshakeMessage(1, body);
}

template <typename... M>
std::vector<Attempt> EveryMessage(std::tuple<M...>*) {
  std::vector<Attempt> out;
  (out.push_back({Cat("message ", int(M::kKind)), wire::EncodeFrame(M{}, 1)}), ...);
  for (const wire::Kind kind : wire::kBareKinds) {
    out.push_back({Cat("message ", int(kind)), wire::EncodeFrame(kind, 1, {}, 0)});
  }
  // Those that would hurt.
  out.push_back({"Drain{n2}", wire::EncodeFrame(wire::Drain{"n2"}, 1)});
  wire::ControlWrite write;
  write.client = Id{1, 2};
  write.sequence = 1;
  write.key = "planted";
  write.value = "by a stranger";
  out.push_back({"ControlWrite", wire::EncodeFrame(wire::ControlHello{1, Id{1, 2}}, 1) + wire::EncodeFrame(write, 2)});
  wire::NodeFacts facts;
  facts.name = "stranger";
  out.push_back({"NodeHello{stranger}", wire::EncodeFrame(wire::NodeHello{facts}, 1)});
  return out;
}

inline std::vector<Attempt> EveryMessage() { return EveryMessage(static_cast<wire::AllMessages*>(nullptr)); }

// What a stranger may say in one breath. `key`: the name of the cluster's token, which is no secret.
inline std::vector<Attempt> Attempts(const wire::KeyId& key) {
  std::vector<Attempt> out = EveryMessage();
  const std::size_t messages = out.size();
  // Kinds that no header has, too.
  for (int kind = 0; kind < 0xff10; kind = kind == 511 ? 0xff00 : kind + 1) {
    out.push_back({Cat("kind ", kind), wire::EncodeFrame(static_cast<wire::Kind>(kind), 0, {}, 0)});
  }
  wire::KeyId unknown{};
  unknown.fill(std::byte{0x33});
  for (int role = 0; role < 34; ++role) {
    out.push_back({Cat("role ", role, " with an unknown token"), HelloOf(role, unknown)});
    out.push_back(
        {Cat("role ", role, " with a wrong proof"), HelloOf(role, key) + HandshakeMessage(3, std::string(32, '\x11'))});
    out.push_back({Cat("role ", role, " of version 9"), HelloOf(role, key, 9)});
    out.push_back({Cat("role ", role, " that goes on without a proof"),
                   HelloOf(role, key) + wire::EncodeFrame(wire::StopCluster{}, 1)});
  }
  for (std::size_t i = 0; i < messages; ++i) {
    const std::string hello = HelloOf(static_cast<int>(1 + i % 5), key);
    out.push_back({Cat(out[i].what, " instead of a proof"), hello + out[i].bytes});
    out.push_back({Cat(out[i].what, " after a wrong proof"),
                   hello + HandshakeMessage(3, std::string(32, '\x11')) + out[i].bytes});
  }
  out.push_back({"the answer of a listener", HandshakeMessage(4, std::string(32, '\0'))});
  out.push_back({"a hello of 65,535 bytes", HandshakeMessage(1, std::string(4096, 'x'), 65535)});
  out.push_back({"a web browser", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"});
  out.push_back({"a shell", "SSH-2.0-OpenSSH_9.2\r\n"});
  out.push_back({"a megabyte of nothing", std::string(1 << 20, '\0')});
  return out;
}

// Knocks at the door with all of it; what is wrong with the answers. From where this thread is.
inline std::vector<std::string> KnockWithAll(const Door& door, const std::vector<Attempt>& attempts,
                                             std::chrono::milliseconds limit = 8s * kSlow) {
  std::vector<std::string> findings;
  for (const Attempt& attempt : attempts) {
    const Answer answer = Knock(door, attempt.bytes, limit);
    if (!Harmless(answer.bytes)) {
      findings.push_back(door.text() + " answers " + attempt.what + " with " + std::to_string(answer.bytes.size()) +
                         " bytes");
    } else if (!answer.closed) {
      findings.push_back(door.text() + " keeps who sent " + attempt.what);
    }
    if (findings.size() >= 5) break;  // this door is open
  }
  return findings;
}

// As another user of this machine; what is wrong. Nothing may be answered at all.
inline std::vector<std::string> KnockAsAnotherUser(const Door& door, const std::vector<Attempt>& attempts) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return {"no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    const InNetwork there(door.network());
    if (!there.entered() || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    for (const Attempt& attempt : attempts) {
      const Answer answer = Knock(door, attempt.bytes, 8s * kSlow);
      if (answer.bytes.empty() && answer.closed) continue;
      const std::string text = door.text() + ": another user got " + std::to_string(answer.bytes.size()) +
                               " bytes or was kept, upon " + attempt.what + "\n";
      if (write(pipe[1], text.data(), text.size()) < 0) _exit(3);
      _exit(1);
    }
    _exit(0);
  }
  close(pipe[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(pipe[0], text.data(), text.size());
  close(pipe[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return {size > 0 ? text.substr(0, static_cast<std::size_t>(size)) : "could not become another user"};
}

// What is wrong with all doors of these processes, for who comes from where each of them is.
inline std::vector<std::string> Audit(const std::vector<Door>& doors, const wire::KeyId& key) {
  const std::vector<Attempt> attempts = Attempts(key);
  std::vector<std::string> findings;
  for (const Door& door : doors) {
    std::vector<std::string> found;
    if (door.kind == "tcp") {
      const InNetwork there(door.network());
      found = KnockWithAll(door, attempts);
    } else if (door.kind == "unix") {
      // The user is the credential: only another user is a stranger.
      if (geteuid() == 0) found = KnockAsAnotherUser(door, EveryMessage());
    } else {
      found = {door.text() + ": nobody knows who answers there"};
    }
    findings.insert(findings.end(), found.begin(), found.end());
  }
  return findings;
}

}  // namespace manta::testing
