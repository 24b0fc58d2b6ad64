// Clusters over a real network: several hosts with addresses of their own (hosts.h), started by the command line, used
// through the public API. All that goes between them is encrypted; a host that is cut off is given up, and gives up.
#include <filesystem>
#include <map>
#include <numeric>

#include "fixture.h"
#include "hosts.h"

namespace manta::testing {
namespace {

// What tasks get and return; nobody on the network may see it.
constexpr char kSecret[] = "the-quick-brown-eavesdropper-jumps-over-the-lazy-cipher";

std::string Secrets(std::size_t bytes) {
  std::string text;
  text.reserve(bytes + sizeof kSecret);
  while (text.size() < bytes) text += kSecret;
  return text;
}

std::string WhereAmI(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return CurrentContext().node;
}

// Length and node, to see who has read it.
std::string Measure(const std::string& text) { return std::to_string(text.size()) + " on " + CurrentContext().node; }

std::string MakeSecrets(std::size_t bytes) { return Secrets(bytes); }

// Says when and where it begins and ends.
std::string Diary(const std::string& path, int number, int milliseconds) {
  const auto write_line = [&](const char* what) {
    std::ostringstream line;
    line << number << ' ' << what << ' ' << CurrentContext().node << ' ' << Now() << '\n';
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (write(file, line.str().data(), line.str().size()) < 0) std::abort();
    close(file);
  };
  write_line("begins");
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  write_line("ends");
  return CurrentContext().node;
}

class NetworkTest : public ::testing::Test {
 protected:
  static constexpr int kHosts = 3;

  void SetUp() override {
    if (const std::string why = Hosts::Forbidden(); !why.empty()) GTEST_SKIP() << why;
    hosts_.emplace(kHosts);
    ASSERT_EQ(hosts_->trouble(), "");
    unsetenv("MANTA_ADDRESS");
    setenv("MANTA_SECRETS", Folder(0).c_str(), 1);
    here_.emplace(hosts_->name(0));  // the driver is on the head's host
    ASSERT_TRUE(here_->entered());
  }
  void TearDown() override {
    Shutdown();
    if (hosts_) {
      for (int i = kHosts - 1; i >= 0; --i) Manta(i, {"stop"}, nullptr, true);
    }
    here_.reset();
    hosts_.reset();
    for (int i = 0; i < kHosts; ++i) std::filesystem::remove_all(Folder(i));
    unsetenv("MANTA_SECRETS");
  }

  [[nodiscard]] std::string Folder(int host) const { return folder_.path() + "/host" + std::to_string(host); }
  static std::string HeadAddress() { return Hosts::address(0) + ":6400"; }

  // Runs `manta` on that host. What it says; empty if it fails.
  std::string Manta(int host, const std::vector<std::string>& words, std::string* errors = nullptr,
                    bool may_fail = false) {
    std::vector<std::string> all = hosts_->Exec(host);
    all.insert(all.end(), {ProgramFolder() + "/manta", "--secrets", Folder(host)});
    all.insert(all.end(), words.begin(), words.end());
    Child child(IpProgram(), all);
    const int status = child.Finish(40s);
    if (errors != nullptr) *errors = child.Err();
    if (status != 0 && errors == nullptr && !may_fail) ADD_FAILURE() << words[0] << ": " << child.Err();
    return status == 0 ? child.Out() : std::string();
  }
  // The command that another host is to be joined with.
  std::vector<std::string> JoinWords(int host, const std::string& token) {
    const std::string file = folder_.path() + "/token";
    std::ofstream(file) << token << "\n";
    return {"start",
            "--join",
            HeadAddress(),
            "--token-file",
            file,
            "--name",
            "n" + std::to_string(host + 1),
            "--cpus",
            "1",
            "--resource",
            "host" + std::to_string(host + 1) + "=8",
            "--store-bytes",
            "134217728"};
  }
  std::string Token() {
    std::string token = Manta(0, {"token"});
    while (!token.empty() && token.back() == '\n') token.pop_back();
    return token;
  }
  void StartHead() {
    const std::string said = Manta(0, {"start", "--head", "--listen", HeadAddress(), "--cpus", "1", "--name", "n1",
                                       "--resource", "host1=8", "--store-bytes", "134217728"});
    ASSERT_THAT(said, ::testing::HasSubstr("(TLS)"));
    ASSERT_THAT(said, ::testing::HasSubstr("--token-file -\nand paste there: manta-join-"));
  }
  // A node on each of the first `count` hosts.
  void StartAll(int count = kHosts) {
    ASSERT_NO_FATAL_FAILURE(StartHead());
    for (int i = 1; i < count; ++i) ASSERT_NE(Manta(i, JoinWords(i, Token())), "");
  }
  [[nodiscard]] pid_t NodeOn(int host) const {
    for (const std::string& line : Lines(ReadFile(Folder(host) + "/cluster"))) {
      if (line.starts_with("node ")) return std::atoi(line.c_str() + 5);
    }
    return 0;
  }
  [[nodiscard]] static std::vector<pid_t> ProcessesIn(const std::string& network) {
    std::string pids;
    Ip({"netns", "pids", network}, &pids);
    std::vector<pid_t> out;
    for (const std::string& line : Lines(pids)) {
      if (const pid_t pid = std::atoi(line.c_str()); Alive(pid)) out.push_back(pid);
    }
    return out;
  }
  // The line of `manta nodes --all` about this node.
  std::string Row(const std::string& node) {
    for (const std::string& line : Lines(Manta(0, {"nodes", "--all"}))) {
      if (line.find(" " + node + " ") != std::string::npos) return line;
    }
    return {};
  }
  // 40 tasks on two nodes; the second is cut off by `cut` while they run.
  void CutOffWhileTasksRun(const std::function<void()>& cut);

  manta::testing::Folder folder_;
  std::optional<Hosts> hosts_;
  std::optional<InNetwork> here_;
};

TEST_F(NetworkTest, TasksAndObjectsCrossAndNobodyInBetweenCanReadThem) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const Eavesdropper ear(*hosts_, kSecret);
  Init();
  constexpr std::size_t kBig = 20U << 20;
  const std::string big = Secrets(kBig);
  const Ref<std::string> put = Put(big);
  const std::string size = std::to_string(big.size());
  // In a task's arguments and in objects, from here to there, from there to a third, and back.
  EXPECT_EQ(Task(Measure).SetResource("host2", 1).Remote(std::string(kSecret)).Get(),
            std::to_string(sizeof kSecret - 1) + " on n2");
  EXPECT_EQ(Task(Measure).SetResource("host2", 1).Remote(put).Get(), size + " on n2");
  EXPECT_EQ(Task(Measure).SetResource("host3", 1).Remote(put).Get(), size + " on n3");
  const Ref<std::string> made = Task(MakeSecrets).SetResource("host2", 1).Remote(kBig);
  EXPECT_EQ(Task(Measure).SetResource("host3", 1).Remote(made).Get(), size + " on n3");
  EXPECT_EQ(made.Get(), big);
  EXPECT_GT(ear.bytes(), 3 * kBig) << "it did not hear all of it";
  EXPECT_FALSE(ear.Heard());

  // It would have: somebody says it aloud.
  const int loud = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  inet_pton(AF_INET, Hosts::address(1).c_str(), &to.sin_addr);
  EXPECT_TRUE(Eventually([&] {
    sendto(loud, kSecret, sizeof kSecret, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    return ear.Heard();
  }));
  close(loud);
}

TEST_F(NetworkTest, ManySmallTasksRunOnAllHosts) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Init();
  // The first rounds may be over before the program has reached every host.
  std::map<std::string, int> nodes;
  EXPECT_TRUE(Eventually(
      [&] {
        std::vector<Ref<std::string>> refs;
        for (int i = 0; i < 60; ++i) refs.push_back(Task(WhereAmI).Remote(20));
        for (const Ref<std::string>& ref : refs) ++nodes[ref.Get()];
        return nodes.size() == 3;
      },
      20s))
      << ::testing::PrintToString(nodes);
}

void NetworkTest::CutOffWhileTasksRun(const std::function<void()>& cut) {
  ASSERT_NO_FATAL_FAILURE(StartAll(2));
  Init();
  const std::string diary = folder_.path() + "/diary";
  constexpr int kTasks = 40;
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < kTasks; ++i) refs.push_back(Task(Diary).Remote(diary, i, 100));
  ASSERT_TRUE(Eventually([&] { return ReadFile(diary).find("begins n2") != std::string::npos; }));
  const std::vector<pid_t> there = ProcessesIn(hosts_->name(1));
  ASSERT_GE(there.size(), 2U);  // the daemon and what it runs
  const auto start = Clock::now();
  cut();
  // It is noticed, and it ends itself, whatever it runs, when it has stood still for a while.
  EXPECT_TRUE(Eventually([&] { return Row("n2").find(" dead ") != std::string::npos; }, 6s)) << Row("n2");
  const auto noticed = Clock::now();
  EXPECT_TRUE(Eventually([&] { return !Alive(NodeOn(1)); }, 20s));
  const auto ended = Clock::now();
  EXPECT_TRUE(Eventually([&] { return ProcessesIn(hosts_->name(1)).empty(); }, 2s));
  for (const Ref<std::string>& ref : refs) EXPECT_THAT(ref.Get(), ::testing::AnyOf("n1", "n2"));
  std::printf("cut off: the node was known to be dead after %.2f s, and ended after %.2f s\n",
              std::chrono::duration<double>(noticed - start).count(),
              std::chrono::duration<double>(ended - start).count());

  // Every task ran to its end, and where it ran twice, the first time was over before the second began.
  std::map<int, std::int64_t> last_there;
  std::map<int, std::int64_t> first_here;
  std::map<int, int> ends;
  for (const std::string& line : Lines(ReadFile(diary))) {
    std::istringstream words(line);
    int number = 0;
    std::string what;
    std::string node;
    std::int64_t when = 0;
    words >> number >> what >> node >> when;
    if (what == "ends") ++ends[number];
    if (node == "n2") last_there[number] = std::max(last_there[number], when);
    if (node == "n1" && !first_here.contains(number)) first_here[number] = when;
  }
  EXPECT_EQ(ends.size(), static_cast<std::size_t>(kTasks));
  int twice = 0;
  for (const auto& [number, when] : last_there) {
    if (!first_here.contains(number)) continue;
    ++twice;
    EXPECT_LT(when, first_here[number]) << "task " << number << " ran on both at once";
  }
  std::printf("%d of %d tasks ran twice\n", twice, kTasks);
}

TEST_F(NetworkTest, AHostWhoseLinkIsCutIsGivenUpAndEndsItself) {
  CutOffWhileTasksRun([&] { hosts_->Cut(1); });
}

TEST_F(NetworkTest, AHostThatIsNotHeardIsGivenUpAndEndsItself) {
  CutOffWhileTasksRun([&] { hosts_->CutOneWay(1, 0); });
}

TEST_F(NetworkTest, AHostThatDoesNotHearIsGivenUpAndEndsItself) {
  CutOffWhileTasksRun([&] { hosts_->CutOneWay(0, 1); });
}

TEST_F(NetworkTest, AShortCutIsForgiven) {
  ASSERT_NO_FATAL_FAILURE(StartAll(2));
  Init();
  EXPECT_EQ(Task(WhereAmI).SetResource("host2", 1).Remote(0).Get(), "n2");
  hosts_->Cut(1);
  std::this_thread::sleep_for(700ms);
  hosts_->Mend(1);
  EXPECT_EQ(Task(WhereAmI).SetResource("host2", 1).Remote(0).Get(), "n2");
  EXPECT_THAT(Row("n2"), ::testing::HasSubstr(" alive "));
}

TEST_F(NetworkTest, AHostThatWasGivenUpJoinsAgainAsANewNode) {
  ASSERT_NO_FATAL_FAILURE(StartAll(2));
  const pid_t before = NodeOn(1);
  hosts_->Cut(1);
  ASSERT_TRUE(Eventually([&] { return !Alive(before); }, 20s));
  hosts_->Mend(1);
  // It has its certificate and the token: no join token is needed.
  EXPECT_NE(Manta(1, {"start", "--join", HeadAddress(), "--name", "again", "--cpus", "1", "--resource", "host2=8",
                      "--store-bytes", "134217728"}),
            "");
  Init();
  EXPECT_EQ(Task(WhereAmI).SetResource("host2", 1).Remote(0).Get(), "again");
}

class Counter {
 public:
  int Add(int by) { return value_ += by; }
  [[nodiscard]] std::string Node() const { return CurrentContext().node; }

 private:
  int value_ = 0;
};

// Between the node that decides about an actor and the one where it runs; both reach the head.
TEST_F(NetworkTest, AnActorWhoseHostAndHomeLoseEachOtherRunsElsewhere) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  here_.reset();
  here_.emplace(hosts_->name(1));
  ASSERT_TRUE(here_->entered());
  setenv("MANTA_SECRETS", Folder(1).c_str(), 1);
  Init();
  EXPECT_EQ(CurrentContext().node, "n2");
  auto counter = Actor<Counter>().OnNode("n3", true).SetMaxRestarts(-1).SetMaxCallRetries(-1).Remote();
  ASSERT_EQ(counter.Task(&Counter::Node).Remote().Get(30s), "n3");
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(5).Get(30s), 5);
  hosts_->CutOneWay(1, 2);
  hosts_->CutOneWay(2, 1);
  // Nobody is told; it is found out. The call is made again, by a process on a node that can be reached.
  const std::string node = counter.Task(&Counter::Node).Remote().Get(150s);
  EXPECT_TRUE(node == "n1" || node == "n2") << node;
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(30s), 6) << "it came back without its state";
  EXPECT_THAT(Row("n3"), ::testing::HasSubstr(" alive "));
}

// ---- who may not join ----

TEST_F(NetworkTest, WithoutATokenWithAForgedOneOrWithAUsedOneNobodyJoins) {
  ASSERT_NO_FATAL_FAILURE(StartHead());
  std::string errors;
  EXPECT_EQ(Manta(1, {"start", "--join", HeadAddress(), "--name", "n2"}, &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr("manta token"));

  // A token of nobody, well formed: another cluster's, with the address of this one.
  EXPECT_NE(Manta(2, {"start", "--head", "--listen", Hosts::address(2) + ":6400", "--name", "other", "--cpus", "1",
                      "--store-bytes", "67108864"}),
            "");
  std::string others = Manta(2, {"token"});
  ASSERT_TRUE(others.starts_with("manta-join-"));
  std::string mistyped = others;
  mistyped[20] = mistyped[20] == 'a' ? 'b' : 'a';
  EXPECT_EQ(Manta(1, JoinWords(1, mistyped), &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr("mistyped"));

  const std::string token = Token();
  EXPECT_NE(Manta(1, JoinWords(1, token)), "");
  Manta(1, {"stop"});
  std::filesystem::remove_all(Folder(1));
  EXPECT_EQ(Manta(1, JoinWords(1, token), &errors), "") << "a join token was good twice";
  EXPECT_THAT(errors, ::testing::HasSubstr("was used already"));
  EXPECT_FALSE(std::filesystem::exists(Folder(1) + "/token")) << "a refused join left the token";
  EXPECT_EQ(Lines(Manta(0, {"nodes"})).size(), 2U);
}

TEST_F(NetworkTest, AMemberWithAnotherTokenIsRefused) {
  ASSERT_NO_FATAL_FAILURE(StartAll(2));
  Manta(1, {"stop"});
  // The same cluster and certificate, but not its token.
  std::string text = ReadFile(Folder(1) + "/token");
  const std::size_t at = text.find_last_of("0123456789abcdef");
  ASSERT_NE(at, std::string::npos);
  for (std::size_t i = at - 15; i <= at; ++i) text[i] = text[i] == '0' ? '1' : '0';
  std::ofstream(Folder(1) + "/token") << text;
  std::string errors;
  EXPECT_EQ(Manta(1, {"start", "--join", HeadAddress(), "--name", "n2"}, &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr("wrong token"));
}

TEST_F(NetworkTest, AMemberWithACertificateOfAnotherAuthorityIsRefused) {
  ASSERT_NO_FATAL_FAILURE(StartAll(2));
  Manta(1, {"stop"});
  EXPECT_NE(Manta(2, {"start", "--head", "--listen", Hosts::address(2) + ":6400", "--name", "other", "--cpus", "1",
                      "--store-bytes", "67108864"}),
            "");
  Manta(2, {"stop"});
  // The right token, but certificates of another cluster.
  std::filesystem::copy_file(Folder(1) + "/token", Folder(2) + "/token",
                             std::filesystem::copy_options::overwrite_existing);
  std::string errors;
  EXPECT_EQ(Manta(2, {"start", "--join", HeadAddress(), "--name", "n3"}, &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr("certificate"));
  EXPECT_EQ(Lines(Manta(0, {"nodes"})).size(), 2U);
}

// ---- a new token ----

TEST_F(NetworkTest, ANewTokenReachesEveryHostAndTheOldOneIsWorthNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAll(2));
  const std::string before = ReadFile(Folder(1) + "/token");
  std::filesystem::copy(Folder(1), Folder(2));  // somebody who had it all, but is not connected
  Init();
  EXPECT_EQ(Task(WhereAmI).SetResource("host2", 1).Remote(0).Get(), "n2");
  std::string errors;
  EXPECT_EQ(Manta(1, {"token", "--rotate"}, &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr(HeadAddress()));
  EXPECT_NE(Manta(0, {"token", "--rotate", "--grace", "0"}), "");
  EXPECT_TRUE(Eventually([&] { return ReadFile(Folder(1) + "/token") == ReadFile(Folder(0) + "/token"); }));
  EXPECT_NE(ReadFile(Folder(1) + "/token"), before);
  // All goes on, also over connections that are made only now.
  EXPECT_EQ(Task(Measure).SetResource("host2", 1).Remote(Put(Secrets(1U << 20))).Get().substr(8), "on n2");
  EXPECT_EQ(Manta(2, {"nodes", "--address", HeadAddress()}, &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr("wrong token"));
}

}  // namespace
}  // namespace manta::testing
