// Every door of a running cluster is shut: whatever listens, found by looking at what its processes have open and not
// by a list, is knocked at with every message there is, and answers nobody without a credential; nothing changes; and
// those who only knock are bounded in time, size and number.
//
// What listens, and how to knock, is in doors.h.
#include "doors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <regex>

#include "base/loop.h"
#include "wire/control_client.h"
#include "wire/dial.h"
#include "wire/tls.h"

namespace manta::testing {
namespace {

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
  ASSERT_EQ(doors.size(), 5U);
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
