// What a user may get wrong at the command line: each time one line says what, and what was perhaps meant; nothing is
// started, and nothing stays behind.
#include "cluster_fixture.h"

namespace manta::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandLine : public ClusterFixture {
 protected:
  // What it complains of.
  std::string Wrong(const std::vector<std::string>& words) {
    Child child("manta", words);
    EXPECT_NE(child.Finish(), 0) << child.Out();
    EXPECT_EQ(child.Out(), "");
    EXPECT_FALSE(std::filesystem::exists(secrets_ + "/cluster"));
    return child.Err();
  }
};

TEST_F(CommandLine, AMisspeltWordIsToldWithTheOneThatWasMeant) {
  EXPECT_THAT(Wrong({}), HasSubstr("manta --help"));
  EXPECT_THAT(Wrong({"strat"}), AllOf(HasSubstr("no command strat"), HasSubstr("did you mean start?")));
  EXPECT_THAT(Wrong({"frobnicate"}), AllOf(HasSubstr("no command frobnicate"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(Wrong({"start", "--haed"}), AllOf(HasSubstr("manta start:"), HasSubstr("did you mean --head?")));
  EXPECT_THAT(Wrong({"start", "--head", "--cpu", "4"}), HasSubstr("no option --cpu (did you mean --cpus?)"));
  EXPECT_THAT(Wrong({"start", "--head", "--store-byte=1G"}), HasSubstr("did you mean --store-bytes?"));
  EXPECT_THAT(Wrong({"stop", "now"}), HasSubstr("one word too many: now"));
  EXPECT_THAT(Wrong({"drain"}), HasSubstr("node is required"));
}

TEST_F(CommandLine, WhatIsNotSaidToThisCommandIsRefusedAndNotIgnored) {
  EXPECT_THAT(Wrong({"start", "--head", "--join", "127.0.0.1:1"}), HasSubstr("--head excludes --join"));
  EXPECT_THAT(Wrong({"start", "--head", "--token-file", "abc"}), HasSubstr("--token-file requires --join"));
  EXPECT_THAT(Wrong({"start", "--join", "127.0.0.1:1", "--token", "abc"}), HasSubstr("did you mean --token-file?"));
  EXPECT_THAT(Wrong({"start", "--head", "--redis-password-file", "x"}), HasSubstr("requires --redis"));
  EXPECT_THAT(Wrong({"start", "--join", "127.0.0.1:1", "--schedulers", "2"}), HasSubstr("requires --head"));
}

TEST_F(CommandLine, ValuesThatCannotBeAreRefusedWithTheirNumbers) {
  const auto start = [this](const std::vector<std::string>& words) {
    std::vector<std::string> all{"start", "--head", "--listen", "127.0.0.1:0"};
    all.insert(all.end(), words.begin(), words.end());
    return Wrong(all);
  };
  EXPECT_THAT(start({"--cpus", "-3"}), HasSubstr("-3"));
  EXPECT_THAT(start({"--store-bytes", "much"}), HasSubstr("'much' is no number of bytes"));
  EXPECT_THAT(start({"--store-bytes", "1X"}), HasSubstr("'1X' is no number of bytes"));
  EXPECT_THAT(start({"--store-bytes", "99999999999999999999"}), HasSubstr("is no number of bytes"));
  EXPECT_THAT(start({"--store-bytes", "4096"}), HasSubstr("at least 1 MiB"));
  EXPECT_THAT(start({"--store-bytes", "1000T"}), HasSubstr("this machine has"));
  EXPECT_THAT(start({"--spill-limit", "-5"}), HasSubstr("'-5' is no number of bytes"));
  EXPECT_THAT(start({"--spill", "/no/such/folder"}), HasSubstr("/no/such/folder"));
  EXPECT_THAT(start({"--valid", "-1"}), HasSubstr("-1"));
}

TEST_F(CommandLine, BytesMayBeSaidInMegabytes) {
  const std::string said = Manta({"start", "--head", "--listen", "127.0.0.1:0", "--store-bytes", "96M"});
  const std::size_t at = said.find('@');
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_THAT(Manta({"status", "--address", said.substr(at, said.find('\n', at) - at)}), HasSubstr("of 96.0 MiB"));
}

TEST_F(CommandLine, AnAddressThatIsNoneIsRefusedBeforeAnythingIsWritten) {
  EXPECT_THAT(Wrong({"start", "--join", "head"}), HasSubstr("'head' is not an address"));
  EXPECT_THAT(Wrong({"start", "--join", "127.0.0.1:99999"}), HasSubstr("is not an address"));
  EXPECT_THAT(Wrong({"start", "--join", "no-such-host.invalid:6400"}), HasSubstr("no-such-host.invalid"));
  EXPECT_FALSE(std::filesystem::exists(secrets_));
}

// As an installed program is: the shell finds it by PATH, and argv[0] has no folder in which to look for TLS.
TEST_F(CommandLine, AHeadThatIsFoundByPathPrintsItsJoinToken) {
  Child head("/bin/sh", {"-c", "cd / && PATH=" + ProgramFolder() +
                                   ":$PATH && manta start --head --tls --cpus 1 "
                                   "--store-bytes 64M --listen 127.0.0.1:0"});
  EXPECT_EQ(head.Finish(), 0) << head.Err();
  EXPECT_THAT(head.Out(), AllOf(HasSubstr("--token-file -\nand paste there: manta-join-"), Not(HasSubstr("--token "))));
}

// The head and its first node say an address that other machines can reach, and that their certificates name.
TEST_F(CommandLine, AHeadListensAtAllAddressesOfTheMachine) {
  for (const std::string listen : {"0.0.0.0:0", "[::]:0"}) {
    const std::string said = Manta({"start", "--head", "--cpus", "1", "--store-bytes", "64M", "--listen", listen});
    EXPECT_THAT(said, AllOf(HasSubstr("(TLS)"), Not(HasSubstr("0.0.0.0")), Not(HasSubstr("[::]"))));
    EXPECT_NE(Manta({"start", "--join", Head(), "--cpus", "1", "--store-bytes", "64M", "--listen", listen}), "");
    EXPECT_THAT(Manta({"nodes"}), AllOf(Not(HasSubstr("0.0.0.0")), Not(HasSubstr("[::]"))));
    Manta({"stop"});
  }
}

// Programs have always looked there; commands that did not showed another cluster than the one the program was in.
TEST_F(CommandLine, TheFolderOfTheEnvironmentIsTheCommandsToo) {
  EXPECT_THAT(Wrong({"nodes"}), HasSubstr(secrets_));
  EXPECT_THAT(Wrong({"stop"}), HasSubstr(secrets_));
}

}  // namespace
}  // namespace manta::testing
