// Every door of a running cluster is shut: whatever listens, found by looking at what its processes have open and not
// by a list, is knocked at with every message there is, and answers nobody without a credential; nothing changes; and
// those who only knock are bounded in time, size and number.
//
// Knows the protocol as a stranger would who has our headers: the only test here that looks inside (scripts/layering).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <random>
#include <regex>

#include "base/loop.h"
#include "fixture.h"
#include "hosts.h"
#include "wire/all_messages.h"
#include "wire/control_client.h"
#include "wire/dial.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/tls.h"

namespace manta::testing {
namespace {

// ---- what listens ----

struct Door {
  std::string kind;   // tcp, unix, or what nobody expects
  std::string where;  // "127.0.0.1:6400", "@manta-0-4711"
  pid_t pid = 0;
  std::string process;

  [[nodiscard]] std::string text() const { return process + " (" + std::to_string(pid) + "), " + kind + " " + where; }
  [[nodiscard]] std::string network() const { return "/proc/" + std::to_string(pid) + "/ns/net"; }
};

std::set<std::uint64_t> SocketsIn(pid_t pid) {
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
std::string HostAndPort(const std::string& hex) {
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

std::vector<std::vector<std::string>> Table(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : Lines(ReadFile(path))) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  if (!rows.empty()) rows.erase(rows.begin());  // the title
  return rows;
}

// The marked processes and all that they have started, whatever environment that was given.
std::vector<Process> Family(const std::string& mark) {
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
std::vector<Door> DoorsOf(const std::vector<Process>& processes) {
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

int Connect(const Door& door) {
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
Answer Listen(int fd, std::chrono::milliseconds limit) {
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

Answer Knock(const Door& door, const std::string& bytes, std::chrono::milliseconds limit) {
  const int fd = Connect(door);
  if (fd < 0) return {{}, true};
  send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const Answer answer = Listen(fd, limit);
  close(fd);
  return answer;
}

// Nothing, or messages of the handshake that give nothing away: Challenge (2) and Refused (5).
bool Harmless(std::string_view bytes) {
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

std::string HandshakeMessage(std::uint8_t type, const std::string& body, int size = -1) {
  std::string out(wire::kLinkMagic.begin(), wire::kLinkMagic.end());
  out += static_cast<char>(type);
  out += '\0';
  const auto length = static_cast<std::uint16_t>(size < 0 ? static_cast<int>(body.size()) : size);
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return out + body;
}

std::string HelloOf(int role, const wire::KeyId& key, std::uint16_t version = 1) {
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

std::vector<Attempt> EveryMessage() { return EveryMessage(static_cast<wire::AllMessages*>(nullptr)); }

// What a stranger may say in one breath. `key`: the name of the cluster's token, which is no secret.
std::vector<Attempt> Attempts(const wire::KeyId& key) {
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
std::vector<std::string> KnockWithAll(const Door& door, const std::vector<Attempt>& attempts,
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
std::vector<std::string> KnockAsAnotherUser(const Door& door, const std::vector<Attempt>& attempts) {
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
std::vector<std::string> Audit(const std::vector<Door>& doors, const wire::KeyId& key) {
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

std::size_t Descriptors(pid_t pid) {
  std::size_t count = 0;
  DIR* dir = opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (dir == nullptr) return 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

std::uint64_t ResidentBytes(pid_t pid) {
  std::istringstream words(ReadFile("/proc/" + std::to_string(pid) + "/statm"));
  std::uint64_t pages = 0;
  words >> pages >> pages;
  return pages * 4096;
}

// ---- the cluster ----

int WaitForEver(const std::string& path) {
  Sign::Give(path);
  for (;;) std::this_thread::sleep_for(1s);
}

class DoorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    secrets_ = folder_.path() + "/secrets";
    const std::string value = std::to_string(getpid()) + ".doors";
    setenv("MANTA_TEST_MARK", value.c_str(), 1);
    mark_ = "MANTA_TEST_MARK=" + value;
    unsetenv("MANTA_ADDRESS");
    setenv("MANTA_SECRETS", secrets_.c_str(), 1);
  }
  void TearDown() override {
    if (busy_) Cancel(*busy_, true);
    busy_.reset();
    Shutdown();
    Manta({"stop"});
    std::filesystem::remove_all(secrets_);
    unsetenv("MANTA_SECRETS");
  }

  std::string Manta(std::vector<std::string> words) {
    words.insert(words.begin(), {"--secrets", secrets_});
    Child child("manta", words);
    const int status = child.Finish();
    if (status != 0 && words[2] != "stop") ADD_FAILURE() << words[2] << ": " << child.Err();
    return status == 0 ? child.Out() : std::string();
  }
  [[nodiscard]] std::string Head() const {
    std::istringstream words(ReadFile(secrets_ + "/cluster"));
    std::string word;
    words >> word >> word;
    return word;
  }
  // Two nodes, of which the second runs a task of this driver: every kind of door there is.
  void StartBusyCluster(const std::string& listen) {
    ASSERT_NE(Manta({"start", "--head", "--listen", listen, "--cpus", "1", "--name", "n1", "--store-bytes", "67108864",
                     "--schedulers", "2"}),
              "");
    ASSERT_NE(Manta({"start", "--join", Head(), "--cpus", "1", "--name", "n2", "--resource", "gold=1", "--store-bytes",
                     "67108864"}),
              "");
    Init();
    busy_ = Task(WaitForEver).SetResource("gold", 1).Remote(sign_.path());
    ASSERT_TRUE(sign_.Await());
    // The head hears of it with the node's next heartbeat; from then on nothing changes by itself.
    ASSERT_TRUE(Eventually([&] { return Manta({"nodes"}).find("gold 0 of 1") != std::string::npos; }, 10s));
  }
  [[nodiscard]] std::vector<Process> OurProcesses() const {
    std::vector<Process> processes = Family(mark_);
    processes.push_back(LookAt(getpid()));  // the driver
    return processes;
  }
  [[nodiscard]] std::shared_ptr<wire::Secrets> OpenSecrets() const {
    Result<std::shared_ptr<wire::Secrets>> opened = wire::Secrets::Open(secrets_);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return *opened;
  }
  [[nodiscard]] wire::KeyId Key() const { return wire::IdOf(OpenSecrets()->keys().token); }

  // All that a stranger might have changed.
  std::string State() {
    std::ostringstream out;
    std::vector<pid_t> pids;
    for (const Process& process : Family(mark_)) pids.push_back(process.pid);
    std::sort(pids.begin(), pids.end());
    for (const pid_t pid : pids) out << pid << ' ';
    out << '\n' << Manta({"nodes", "--all"});
    // A worker may just have started; and other clusters of this machine are listed, too.
    const std::string status =
        std::regex_replace(Manta({"status", "--json"}), std::regex(R"("(uptime|workers)[^,]*,)"), "");
    for (std::string line : Lines(status)) {
      if (line.ends_with(',')) line.pop_back();  // another one follows, or does not any more
      for (const pid_t pid : pids) {
        if (line.find(Cat("\"pid\": ", pid, ",")) != std::string::npos) out << line << '\n';
      }
    }
    for (const auto& file : std::filesystem::directory_iterator(secrets_)) {
      if (file.is_regular_file()) out << file.path() << ' ' << std::hash<std::string>()(ReadFile(file.path())) << '\n';
    }
    // Every row of the control store.
    Result<std::unique_ptr<base::Loop>> loop = base::Loop::Create();
    wire::ControlClient client(**loop, wire::ConnectOverTcp(**loop, Head(), OpenSecrets()));
    int left = 0;
    for (std::uint8_t table = 1; table < wire::kTables; ++table) {
      ++left;
      client.ScanAll(static_cast<wire::Table>(table), "", [&, table](Result<std::vector<wire::ControlEntry>> rows) {
        --left;
        EXPECT_TRUE(rows.ok()) << rows.status().message();
        if (!rows.ok()) return;
        for (const wire::ControlEntry& row : *rows) out << int(table) << ' ' << row.key << ' ' << row.version << '\n';
      });
    }
    while (left > 0) (*loop)->RunOnce(-1);
    return out.str();
  }

  Folder folder_;
  std::string secrets_;
  std::string mark_;
  Sign sign_;
  std::optional<Ref<int>> busy_;
};

std::map<std::string, int> Count(const std::vector<Door>& doors) {
  std::map<std::string, int> count;
  for (const Door& door : doors) ++count[door.process + " " + door.kind];
  return count;
}

TEST_F(DoorsTest, NobodyIsAnsweredWithoutACredential) {
  ASSERT_NO_FATAL_FAILURE(StartBusyCluster("127.0.0.1:0"));
  const std::vector<Door> doors = DoorsOf(OurProcesses());
  std::map<std::string, int> count = Count(doors);
  // Else it is not looking properly.
  EXPECT_EQ(count["manta-control tcp"], 2);  // the head and a scheduler
  EXPECT_EQ(count["mantad tcp"], 2);
  EXPECT_EQ(count["mantad unix"], 2);
  EXPECT_EQ(count["manta-worker tcp"], 1);
  for (const Door& door : doors) std::printf("  %s\n", door.text().c_str());

  const std::string before = State();
  EXPECT_THAT(Audit(doors, Key()), ::testing::IsEmpty());
  EXPECT_EQ(State(), before);
  EXPECT_EQ(Task([](int x) { return x + 1; }).Remote(1).Get(), 2);  // and all goes on
}

TEST_F(DoorsTest, AnotherUserWithTheTokenIsAStranger) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_NO_FATAL_FAILURE(StartBusyCluster("127.0.0.1:0"));
  const wire::Keys keys = OpenSecrets()->keys();
  for (const Door& door : DoorsOf(Family(mark_))) {
    if (door.kind != "tcp") continue;
    const pid_t child = fork();
    if (child == 0) {
      if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
      for (int role = 1; role <= 5; ++role) {
        wire::DialOptions options;
        options.role = static_cast<wire::LinkRole>(role);
        options.secrets = wire::Secrets::FromKeys(keys);
        if (wire::DialAndWait(door.where, options).ok()) _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << door.text();
  }
}

TEST_F(DoorsTest, WhoOnlyKnocksIsBoundedInTimeSizeAndNumber) {
  ASSERT_NO_FATAL_FAILURE(StartBusyCluster("127.0.0.1:0"));
  constexpr std::size_t kCallers = 300;  // at each door
  constexpr std::size_t kPending = 128;  // ListenOptions::max_pending
  constexpr auto kLimit = 5s;            // kHandshakeLimitMicros
  std::vector<Door> doors;
  for (const Door& door : DoorsOf(Family(mark_))) {
    if (door.kind == "tcp") doors.push_back(door);
  }
  ASSERT_EQ(doors.size(), 4U);
  struct Caller {
    int fd = -1;
    std::size_t sent = 0;
    std::size_t pace = 0;  // bytes each round
  };
  std::vector<Caller> callers;
  std::map<pid_t, std::size_t> descriptors;
  std::map<pid_t, std::uint64_t> bytes;
  for (const Door& door : doors) {
    descriptors[door.pid] = Descriptors(door.pid);
    bytes[door.pid] = ResidentBytes(door.pid);
  }
  // Some say nothing, some a byte now and then, some all but the last byte.
  const std::string hello = HelloOf(1, Key());
  for (std::size_t i = 0; i < kCallers; ++i) {
    for (const Door& door : doors) {
      Caller caller;
      caller.fd = Connect(door);
      ASSERT_GE(caller.fd, 0) << door.text();
      caller.pace = i % 3 == 1 ? 1 : 0;
      if (i % 3 == 2) send(caller.fd, hello.data(), hello.size() - 1, MSG_NOSIGNAL);
      callers.push_back(caller);
    }
  }
  const auto start = Clock::now();
  std::size_t most = 0;
  std::uint64_t most_bytes = 0;
  bool member_came_in = false;
  while (!callers.empty() && Clock::now() - start < kLimit * 2 * kSlow) {
    for (const Door& door : doors) {
      if (const std::size_t now = Descriptors(door.pid); now > descriptors[door.pid]) {
        most = std::max(most, now - descriptors[door.pid]);
      }
      if (const std::uint64_t now = ResidentBytes(door.pid); now > bytes[door.pid]) {
        most_bytes = std::max(most_bytes, now - bytes[door.pid]);
      }
    }
    if (!member_came_in) member_came_in = !Manta({"nodes"}).empty();
    std::erase_if(callers, [&](Caller& caller) {
      if (caller.pace > 0 && caller.sent < hello.size() - 1) {
        send(caller.fd, hello.data() + caller.sent, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        ++caller.sent;
      }
      char byte = 0;
      const ssize_t got = recv(caller.fd, &byte, 1, MSG_DONTWAIT);
      EXPECT_LE(got, 0) << "somebody was answered";
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      close(caller.fd);
      return true;
    });
    std::this_thread::sleep_for(100ms);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%zu callers at each of %zu doors: all cut off after %.1f s, at most %zu descriptors and %.1f MB more\n",
              kCallers, doors.size(), seconds, most, static_cast<double>(most_bytes) / 1e6);
  EXPECT_TRUE(callers.empty()) << callers.size() << " are still there";
  EXPECT_LE(seconds, 7.0 * kSlow);
  EXPECT_LE(most, kPending + 8);
  EXPECT_LE(most_bytes, (64U << 20) * kSlow);
  EXPECT_TRUE(member_came_in);
  for (const Caller& caller : callers) close(caller.fd);
}

TEST_F(DoorsTest, StrangersCannotFillTheLog) {
  ASSERT_NO_FATAL_FAILURE(StartBusyCluster("127.0.0.1:0"));
  Door head;
  for (const Door& door : DoorsOf(Family(mark_))) {
    if (door.process == "manta-control") head = door;
  }
  for (int i = 0; i < 2000; ++i) Knock(head, "GET / HTTP/1.1\r\n\r\n", 5s);
  EXPECT_LT(ReadFile(secrets_ + "/logs/control.log").size(), 20'000U);
}

// ---- the same from another host, through TLS ----

class Tls {
 public:
  // Null: the handshake failed.
  static std::unique_ptr<wire::Stream> Open(const Door& door, wire::TlsContext& context) {
    const int fd = Connect(door);
    if (fd < 0) return nullptr;
    auto stream = std::make_unique<wire::Stream>(base::Fd(fd), context.Connect(fd, ""));
    const auto end = Clock::now() + 8s * kSlow;
    while (Clock::now() < end) {
      switch (stream->tls()->Handshake()) {
        case wire::TlsSession::Step::kDone:
          return stream;
        case wire::TlsSession::Step::kFailed:
          return nullptr;
        default:
          pollfd wait{fd, POLLIN, 0};
          poll(&wait, 1, 100);
      }
    }
    return nullptr;
  }
  static Answer Say(wire::Stream& stream, const std::string& bytes) {
    Answer answer;
    static_cast<void>(stream.WriteAll(std::as_bytes(std::span(bytes)), 1'000'000));
    const auto end = Clock::now() + 8s * kSlow;
    while (Clock::now() < end) {
      std::array<std::byte, 4096> buffer;
      const Result<std::size_t> got = stream.ReadSome(buffer, 8'000'000);
      if (!got.ok() || got.value() == 0) {
        answer.closed = got.ok() || got.status().code() != Code::kTimedOut;
        return answer;
      }
      answer.bytes.append(reinterpret_cast<const char*>(buffer.data()), got.value());
    }
    return answer;
  }
};

TEST_F(DoorsTest, NobodyOnAnotherHostIsAnsweredWithoutACertificateAndTheToken) {
  if (const std::string why = Hosts::Forbidden(); !why.empty()) GTEST_SKIP() << why;
  Hosts hosts(2);
  ASSERT_EQ(hosts.trouble(), "");
  {
    const InNetwork here(hosts.name(0));
    ASSERT_NO_FATAL_FAILURE(StartBusyCluster(Hosts::address(0) + ":0"));
    const std::vector<Door> doors = DoorsOf(OurProcesses());
    std::map<std::string, int> count = Count(doors);
    EXPECT_EQ(count["manta-control tcp"], 2);  // the head and a scheduler
    EXPECT_EQ(count["mantad tcp"], 2);
    EXPECT_EQ(count["manta-worker tcp"], 1);
    const std::string before = State();
    // From the same host, as above.
    const wire::KeyId key = Key();
    EXPECT_THAT(Audit(doors, key), ::testing::IsEmpty());

    // From another one: not in plain, …
    const Result<wire::TlsLibrary*> library = wire::LoadTls();
    ASSERT_TRUE(library.ok()) << library.status().message();
    const Result<wire::Digest> authority = library.value()->Fingerprint(ReadFile(secrets_ + "/ca.crt"));
    ASSERT_TRUE(authority.ok());
    Result<std::unique_ptr<wire::TlsContext>> joining = library.value()->Joining(authority.value());
    ASSERT_TRUE(joining.ok());
    std::optional<InNetwork> there(hosts.name(1));
    const std::vector<Attempt> messages = EveryMessage();
    std::vector<std::string> findings;
    for (const Door& door : doors) {
      if (door.kind != "tcp") continue;
      for (const std::string& finding : KnockWithAll(door, messages)) findings.push_back("in plain: " + finding);
      // … nor without a certificate: in no role, …
      for (int role = 0; role < 8; ++role) {
        const std::unique_ptr<wire::Stream> stream = Tls::Open(door, **joining);
        ASSERT_NE(stream, nullptr) << door.text();
        const Answer answer = Tls::Say(*stream, HelloOf(role, key));
        if (!Harmless(answer.bytes) || !answer.closed || answer.bytes.empty() || answer.bytes[8] != 5) {
          findings.push_back(Cat(door.text(), " does not refuse role ", role, " without a certificate"));
        }
      }
      // … and nothing that comes instead of the handshake.
      for (const Attempt& attempt : messages) {
        const std::unique_ptr<wire::Stream> stream = Tls::Open(door, **joining);
        ASSERT_NE(stream, nullptr) << door.text();
        const Answer answer = Tls::Say(*stream, attempt.bytes);
        if (!answer.bytes.empty() || !answer.closed) findings.push_back(door.text() + " answers " + attempt.what);
      }
    }
    EXPECT_THAT(findings, ::testing::IsEmpty());
    there.reset();
    EXPECT_EQ(State(), before);

    // A member of another version is told both.
    wire::DialOptions options;
    options.secrets = OpenSecrets();
    options.role = wire::LinkRole::kNode;
    options.versions = {7, 9};
    const Result<wire::Link> link = wire::DialAndWait(Head(), options);
    ASSERT_FALSE(link.ok());
    EXPECT_THAT(link.status().message(),
                ::testing::HasSubstr("wrong version: it speaks protocol version 1, this program 7 to 9"));
  }
  const InNetwork here(hosts.name(0));
  TearDown();
}

// ---- the test itself ----

// A process of the cluster that somebody forgot to put a lock on.
class CarelessProcess {
 public:
  explicit CarelessProcess(const std::string& what) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      const bool udp = what == "udp";
      const int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
      sockaddr_in any{};
      any.sin_family = AF_INET;
      any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any);
      if (!udp) listen(fd, 64);
      if (write(ready[1], "r", 1) < 0) _exit(1);
      std::vector<int> kept;
      for (;;) {
        const int one = udp ? -1 : accept(fd, nullptr, nullptr);
        if (one < 0) {
          pause();
        } else if (what == "silent") {
          kept.push_back(one);
        } else {
          char buffer[256];
          const ssize_t got = recv(one, buffer, sizeof buffer, 0);
          if (got > 0) send(one, buffer, static_cast<std::size_t>(got), MSG_NOSIGNAL);
          close(one);
        }
      }
    }
    char byte = 0;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) pid_ = 0;
    close(ready[0]);
  }
  ~CarelessProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  CarelessProcess(const CarelessProcess&) = delete;
  CarelessProcess& operator=(const CarelessProcess&) = delete;
  [[nodiscard]] std::vector<Door> Doors() const { return DoorsOf({LookAt(pid_)}); }

 private:
  pid_t pid_ = 0;
};

TEST(Doors, AreFoundOpenWhenTheyAre) {
  const CarelessProcess echo("echo");
  ASSERT_EQ(echo.Doors().size(), 1U);
  EXPECT_THAT(Audit(echo.Doors(), {}), ::testing::Not(::testing::IsEmpty()));

  const CarelessProcess silent("silent");
  ASSERT_EQ(silent.Doors().size(), 1U);
  EXPECT_THAT(KnockWithAll(silent.Doors()[0], {{"nothing", "?"}}, 300ms),
              ::testing::ElementsAre(::testing::HasSubstr("keeps who sent nothing")));

  const CarelessProcess udp("udp");
  ASSERT_EQ(udp.Doors().size(), 1U);
  EXPECT_THAT(Audit(udp.Doors(), {}), ::testing::ElementsAre(::testing::HasSubstr("nobody knows who answers there")));
}

}  // namespace
}  // namespace manta::testing
