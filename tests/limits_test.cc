// Bad input and scarce resources: each is a clear error; nothing hangs, nothing is left behind.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmath>
#include <limits>

#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// ---- configuration ----

struct BadConfig {
  std::string name;
  void (*spoil)(Config&);
  std::string text;  // must be in the message
};

class Configuration : public ::testing::TestWithParam<BadConfig> {};

TEST_P(Configuration, IsRefusedWithWhatIsWrong) {
  Config config;
  config.cpus = 1;
  config.store_bytes = 64 << 20;
  GetParam().spoil(config);
  EXPECT_THAT(MessageOf<InvalidError>([&] { Init(config); }), HasSubstr(GetParam().text));
  EXPECT_FALSE(IsInitialized());
}

INSTANTIATE_TEST_SUITE_P(
    Bad, Configuration,
    ::testing::Values(
        BadConfig{"NegativeCpus", [](Config& c) { c.cpus = -1; }, "CPU"},
        BadConfig{"NanCpus", [](Config& c) { c.cpus = std::nan(""); }, "CPU"},
        BadConfig{"InfiniteCpus", [](Config& c) { c.cpus = std::numeric_limits<double>::infinity(); }, "CPU"},
        BadConfig{"NegativeGpus", [](Config& c) { c.gpus = -2; }, "GPU"},
        BadConfig{"HalfAGpu", [](Config& c) { c.gpus = 0.5; }, "GPU"},
        BadConfig{"NegativeResource", [](Config& c) { c.resources["tape"] = -1; }, "tape"},
        BadConfig{"NamelessResource", [](Config& c) { c.resources[""] = 1; }, "resource"},
        BadConfig{"CpuAsNamedResource", [](Config& c) { c.resources["CPU"] = 1; }, "CPU"},
        BadConfig{"TinyStore", [](Config& c) { c.store_bytes = 1; }, "store"},
        BadConfig{"StoreLargerThanTheMachine", [](Config& c) { c.store_bytes = 1ULL << 60; }, "store_bytes"},
        BadConfig{"NoSuchSpillFolder", [](Config& c) { c.spill_folder = "/no/such/folder"; }, "/no/such/folder"},
        BadConfig{"SpillFolderIsAFile", [](Config& c) { c.spill_folder = "/etc/passwd"; }, "/etc/passwd"},
        BadConfig{"NonsenseAddress", [](Config& c) { c.address = "not an address"; }, "not an address"}),
    [](const auto& bad) { return bad.param.name; });

TEST(GoodConfiguration, IsAcceptedAfterABadOne) {
  Config config;
  config.cpus = -1;
  EXPECT_THROW(Init(config), InvalidError);
  config.cpus = 1;
  config.store_bytes = 64 << 20;
  Init(config);
  EXPECT_EQ(Task([] { return 7; }).Remote().Get(), 7);
  Shutdown();
}

// ---- addresses that lead nowhere ----

std::string NobodysAddress() {
  const pid_t nobody = 4'194'304;  // above every possible pid
  return "@manta-" + std::to_string(getuid()) + "-" + std::to_string(nobody);
}

TEST(AnAddress, WhereNobodyListensIsUnavailable) {
  Config config;
  config.address = NobodysAddress();
  EXPECT_THAT(MessageOf<UnavailableError>([&] { Init(config); }), HasSubstr(config.address));
  EXPECT_FALSE(IsInitialized());
}

TEST(AnAddress, FromTheEnvironmentIsNamedInTheError) {
  setenv("MANTA_ADDRESS", NobodysAddress().c_str(), 1);
  EXPECT_THAT(MessageOf<UnavailableError>([] { Init(); }),
              AllOf(HasSubstr(NobodysAddress()), HasSubstr("MANTA_ADDRESS")));
  unsetenv("MANTA_ADDRESS");
}

// Listens where a daemon would, and treats whoever comes as told.
class Impostor {
 public:
  explicit Impostor(std::string answer) : answer_(std::move(answer)) {
    name_ = "manta-" + std::to_string(getuid()) + "-" + std::to_string(getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data(), name_.size());
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    thread_ = std::thread([this] {
      const int peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      char ignored[4096];
      (void)!read(peer, ignored, sizeof ignored);
      (void)!send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      close(peer);
    });
  }
  ~Impostor() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  [[nodiscard]] std::string address() const { return "@" + name_; }

 private:
  std::string answer_;
  std::string name_;
  int fd_ = -1;
  std::thread thread_;
};

TEST(AnAddress, WhereSomethingElseAnswersIsAnErrorAndNotAHang) {
  for (const std::string& answer : {std::string(), std::string("HTTP/1.1 400 Bad Request\r\n\r\n"),
                                    std::string(64, '\xff'), std::string(64, '\0')}) {
    const Impostor impostor(answer);
    Config config;
    config.address = impostor.address();
    const std::string text = MessageOf<Error>([&] { Init(config); });
    EXPECT_THAT(text, HasSubstr(config.address));
    EXPECT_FALSE(IsInitialized());
  }
}

// ---- another user at an address of ours ----

// Listens, as another user, at a name that looks like this user's cluster. It never answers: a client that sends
// anything first would wait for it.
class Squatter {
 public:
  Squatter() {
    name_ = "manta-" + std::to_string(getuid()) + "-" + std::to_string(getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data(), name_.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    EXPECT_EQ(seteuid(65534), 0);
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    EXPECT_EQ(seteuid(0), 0);
  }
  ~Squatter() { close(fd_); }
  // How many bytes clients have sent since the last call.
  [[nodiscard]] std::size_t Received() const {
    std::size_t count = 0;
    for (int peer = -1; (peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(peer)) {
      char bytes[4096];
      const ssize_t got = recv(peer, bytes, sizeof bytes, MSG_DONTWAIT);
      if (got > 0) count += static_cast<std::size_t>(got);
    }
    return count;
  }
  [[nodiscard]] std::string address() const { return "@" + name_; }

 private:
  std::string name_;
  int fd_ = -1;
};

TEST(AnotherUser, WhoServesAnAddressIsRefusedByTheDriverByName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Squatter squatter;
  Config config;
  config.address = squatter.address();
  EXPECT_THAT(MessageOf<InvalidError>([&] { Init(config); }),
              AllOf(HasSubstr(config.address), HasSubstr("served by user nobody (65534)")));
  EXPECT_FALSE(IsInitialized());
  EXPECT_EQ(squatter.Received(), 0U);
}

TEST(AnotherUser, WhoServesAnAddressIsNoClusterThatAutoFinds) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Squatter squatter;
  Config config;
  config.address = "auto";
  EXPECT_THAT(MessageOf<UnavailableError>([&] { Init(config); }), ::testing::Not(HasSubstr(squatter.address())));
  EXPECT_EQ(squatter.Received(), 0U);
}

TEST(AnotherUser, WhoServesAnAddressIsRefusedByTheCommandLineByName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Squatter squatter;
  for (const char* command : {"status", "memory"}) {
    Child tool("manta", {command, "--address", squatter.address()});
    EXPECT_NE(tool.Finish(), 0);
    EXPECT_THAT(tool.Err(), HasSubstr("served by user nobody (65534)"));
  }
  EXPECT_EQ(squatter.Received(), 0U);
}

// ---- things of another cluster ----

class Foreign : public ClusterTest {};

struct Thing {
  int One() { return 1; }
};

TEST_F(Foreign, ARefOfAnEarlierClusterIsRefused) {
  Ref<int> task = Task([] { return 1; }).Remote();
  task.Get();
  Ref<std::string> object = Put(std::string(100'000, 'x'));
  Shutdown();
  Init(MakeConfig());
  EXPECT_THROW(Task([](const std::string& x) { return x; }).Remote(object).Get(10s), Error);
  EXPECT_THROW(Task([](const Ref<std::string>& x) { return x.Get(); }).Remote(object).Get(10s), Error);
  // As values inside others they would be promises that nobody keeps.
  EXPECT_THROW(Put(std::vector<Ref<int>>{task}), InvalidError);
  EXPECT_THROW(Task([](const Ref<int>& x) { return x.Get(); }).Remote(task), InvalidError);
  EXPECT_EQ(Task([] { return 2; }).Remote().Get(), 2);
}

TEST_F(Foreign, AHandleOfAnEarlierClusterIsRefused) {
  auto thing = Actor<Thing>().Remote();
  EXPECT_EQ(thing.Task(&Thing::One).Remote().Get(), 1);
  Shutdown();
  Init(MakeConfig());
  EXPECT_THROW(thing.Task(&Thing::One).Remote().Get(10s), Error);
  EXPECT_THROW(Kill(thing), Error);
}

TEST_F(Foreign, AHandleOfADeadActorSaysSoEveryTime) {
  auto thing = Actor<Thing>().Remote();
  Kill(thing);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(thing.Task(&Thing::One).Remote().Get(10s), ActorDiedError);
  Kill(thing);  // dead already: nothing to do
  EXPECT_THROW(Task([](ActorHandle<Thing> t) { return t.Task(&Thing::One).Remote().Get(); }).Remote(thing).Get(10s),
               Error);
}

// ---- scarcity ----

// Either everything worked, or one clear error; in any case an orderly end with nothing left.
std::string RunLimited(const std::string& what, int most) {
  Child program("limited", {what, std::to_string(most)});
  EXPECT_EQ(program.Finish(40s), 0) << program.Out() << program.Err();
  EXPECT_TRUE(program.LeavesNothing(2s)) << Describe(Marked(program.mark()));
  EXPECT_THAT(program.Out(), ::testing::Not(HasSubstr("WRONG")));
  return program.Out() + program.Err();
}

TEST(TooFew, FileDescriptorsForInitSayHowManyAndWhatToDo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan opens a pipe to look at an object's type, and without a descriptor for it reports the object";
#endif
  for (int most : {4, 6, 8}) {
    const std::string out = RunLimited("descriptors", most);
    EXPECT_THAT(out, AllOf(HasSubstr("error"), HasSubstr("ulimit -n")));
  }
}

TEST(TooFew, FileDescriptorsForManyActorsAreAnErrorOrNoProblem) {
  for (int most : {20, 30, 50})
    EXPECT_THAT(RunLimited("descriptors", most), AnyOf(HasSubstr("worked"), HasSubstr("ulimit -n")));
}

TEST(TooLittle, AddressSpaceIsAnErrorOrNoProblem) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need terabytes of addresses";
  for (int megabytes : {128, 512, 2'048}) {
    EXPECT_THAT(RunLimited("addresses", megabytes),
                AnyOf(HasSubstr("worked"), HasSubstr("error"), HasSubstr("bad_alloc")));
  }
}

// A task that wants too much fails; the driver hears why, and goes on.
void ExpectOnlyTheTaskFails(const std::string& limit, int megabytes, const std::string& text) {
  Child program("hungry", {limit, std::to_string(megabytes)});
  EXPECT_EQ(program.Finish(60s), 0) << program.Out() << program.Err();
  EXPECT_TRUE(program.LeavesNothing(2s)) << Describe(Marked(program.mark()));
  const std::string out = program.Out();
  EXPECT_THAT(out, AllOf(HasSubstr("out of memory: "), HasSubstr(text))) << program.Err();
  EXPECT_THAT(out, ::testing::Not(HasSubstr("WRONG")));
  EXPECT_NE(out.find("then ate 1048576"), out.rfind("then ate 1048576")) << out;
}

TEST(TooLittle, MemoryForATaskIsItsErrorUnderALimitOfAddresses) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need terabytes of addresses";
  // Every process maps its own and others' arenas, of 16 GiB of addresses each.
  ExpectOnlyTheTaskFails("addresses", 128 * 1024, "128.0 GiB of addresses (ulimit -v)");
}

TEST(TooLittle, MemoryForATaskIsItsErrorUnderALimitOfData) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need terabytes of addresses";
  ExpectOnlyTheTaskFails("data", 512, "512.0 MiB of data (ulimit -d)");
}

// A memory control group inside the one that this process is in; empty path: there can be none, `why` says why not.
class SmallGroup {
 public:
  explicit SmallGroup(std::uint64_t bytes) {
    std::ifstream self("/proc/self/cgroup");
    std::string parent;
    bool second = false;
    for (std::string line; std::getline(self, line);) {
      const std::string controllers = "," + line.substr(line.find(':') + 1, line.rfind(':') - line.find(':') - 1) + ",";
      const std::string path = line.substr(line.rfind(':') + 1);
      if (controllers.find(",memory,") != std::string::npos) {
        parent = "/sys/fs/cgroup/memory" + path;
        second = false;
        break;
      }
      if (controllers == ",,") {
        parent = "/sys/fs/cgroup" + path;
        second = true;
      }
    }
    if (parent.empty()) {
      why_ = "this process is in no control group";
      return;
    }
    path_ = parent + "/manta-test-" + std::to_string(getpid());
    if (mkdir(path_.c_str(), 0700) != 0) {
      why_ = "cannot make " + path_ + ": " + std::strerror(errno);
      path_.clear();
      return;
    }
    const std::string file = path_ + (second ? "/memory.max" : "/memory.limit_in_bytes");
    std::ofstream limit(file);
    if (!(limit << bytes << std::flush)) {
      why_ = "cannot write " + file + ": the memory controller is not delegated to this group";
      rmdir(path_.c_str());
      path_.clear();
      return;
    }
    std::ofstream(path_ + "/memory.swap.max") << 0;
  }
  ~SmallGroup() {
    if (path_.empty()) return;
    EXPECT_TRUE(Eventually([this] { return rmdir(path_.c_str()) == 0; })) << path_ << " was left behind";
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::string path_;
  std::string why_;
};

TEST(TooLittle, MemoryInAControlGroupIsTheErrorOfTheTaskThatTheKernelKilled) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need much memory of their own";
  const SmallGroup group(256ULL << 20);
  if (group.path().empty()) GTEST_SKIP() << group.why();
  ExpectOnlyTheTaskFails(group.path(), 256, "killed by the kernel for want of memory");
}

TEST(TooFew, ProcessesAreAnErrorOrNoProblem) {
  if (getuid() == 0) GTEST_SKIP() << "root has no limit of processes";
  EXPECT_THAT(RunLimited("processes", 1), AnyOf(HasSubstr("worked"), HasSubstr("error")));
}

}  // namespace
}  // namespace manta::testing
