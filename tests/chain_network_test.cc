// A chain of the control store over machines (hosts.h): its front and its members, each on a host of its own with
// secrets of its own, speak TLS with certificates of the cluster's authority, and with nobody else.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/loop.h"
#include "control/chain_config.h"
#include "fixture.h"
#include "hosts.h"
#include "wire/control_client.h"
#include "wire/secrets.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;
using wire::Table;

// What is written; nobody on the network may see it.
constexpr char kSecret[] = "the-quick-brown-eavesdropper-jumps-over-the-lazy-chain";

class ChainNetworkTest : public ::testing::Test {
 protected:
  static constexpr int kHosts = 3;

  void SetUp() override {
    if (const std::string why = Hosts::Forbidden(); !why.empty()) GTEST_SKIP() << why;
    hosts_.emplace(kHosts);
    ASSERT_EQ(hosts_->trouble(), "");
    here_.emplace(hosts_->name(0));  // the client is on the front's host
    ASSERT_TRUE(here_->entered());
    loop_ = std::move(*base::Loop::Create());
  }
  void TearDown() override {
    client_.reset();
    front_.reset();
    for (auto& member : members_) member.reset();
    here_.reset();
    hosts_.reset();
  }

  [[nodiscard]] std::string Secrets(int host) const { return folder_.path() + "/secrets-" + std::to_string(host); }
  static std::string MemberAt(int host) { return Hosts::address(host) + ":6501"; }
  static std::string FrontAt() { return Hosts::address(0) + ":6400"; }

  // manta-control on that host; waits until it listens.
  std::unique_ptr<Child> Control(int host, const std::string& address, const std::vector<std::string>& words) {
    std::vector<std::string> all = hosts_->Exec(host);
    all.insert(all.end(), {ProgramFolder() + "/manta-control", "--secrets", Secrets(host), "--listen", address,
                           "--ready-fd", "1"});
    all.insert(all.end(), words.begin(), words.end());
    auto child = std::make_unique<Child>(IpProgram(), all);
    EXPECT_TRUE(child->Says(address, 30s)) << child->Err();
    return child;
  }
  void StartMember(int host) {
    const std::string folder = folder_.path() + "/member-" + std::to_string(host);
    members_[host] = Control(host, MemberAt(host), {"--member", "--folder", folder, "--tls"});
  }
  void StartFront() {
    const std::string chain = MemberAt(0) + "," + MemberAt(1) + "," + MemberAt(2);
    front_ = Control(0, FrontAt(), {"--chain", chain, "--folder", folder_.path() + "/front", "--tls"});
    Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(Secrets(0));
    ASSERT_TRUE(secrets.ok()) << secrets.status().message();
    client_ = std::make_unique<wire::ControlClient>(*loop_, wire::ConnectOverTcp(*loop_, FrontAt(), *secrets));
  }
  // As doc/replication.md says: what another machine needs of the first one's secrets.
  void CopySecrets(int host, const std::vector<std::string>& files) {
    mkdir(Secrets(host).c_str(), 0700);
    for (const std::string& file : files) {
      std::filesystem::copy_file(Secrets(0) + "/" + file, Secrets(host) + "/" + file);
    }
  }
  bool Until(const std::function<bool()>& so) {
    return Eventually(
        [&] {
          loop_->RunOnce(1'000);
          return so();
        },
        30s);
  }
  // The members of the chain, in order of their numbers; none while one joins.
  [[nodiscard]] std::vector<rules::MemberId> Members() const {
    const Result<control::SavedChain> saved = control::LoadChain(folder_.path() + "/front/chain-0/chain");
    if (!saved.ok() || saved.value().config.joiner != rules::kNoMember) return {};
    std::vector<rules::MemberId> members = saved.value().config.members;
    std::sort(members.begin(), members.end());
    return members;
  }
  // So many keys, one after another; true when all were acknowledged.
  bool Write(int count) {
    int left = count;
    const std::function<void()> next = [&] {
      client_->Put(Table::kKeyValue, "key-" + std::to_string(written_), kSecret + std::to_string(written_),
                   [&](const Result<wire::ControlWritten>& result) {
                     EXPECT_TRUE(result.ok()) << result.status().message();
                     ++written_;
                     if (--left > 0) next();
                   });
    };
    next();
    return Until([&] { return left == 0; });
  }
  void ExpectAllThere() {
    std::optional<Result<std::vector<wire::ControlEntry>>> all;
    client_->ScanAll(Table::kKeyValue, "key-",
                     [&](Result<std::vector<wire::ControlEntry>> rows) { all = std::move(rows); });
    ASSERT_TRUE(Until([&] { return all.has_value(); }));
    ASSERT_TRUE(all->ok()) << all->status().message();
    EXPECT_EQ((*all)->size(), static_cast<std::size_t>(written_));
  }

  Folder folder_;
  std::optional<Hosts> hosts_;
  std::optional<InNetwork> here_;
  std::unique_ptr<base::Loop> loop_;
  std::array<std::unique_ptr<Child>, kHosts> members_;
  std::unique_ptr<Child> front_;
  std::unique_ptr<wire::ControlClient> client_;
  int written_ = 0;
};

TEST_F(ChainNetworkTest, NothingBetweenFrontAndMembersCanBeOverheard) {
  Eavesdropper eavesdropper(*hosts_, kSecret);
  ASSERT_NO_FATAL_FAILURE(StartMember(0));  // makes the authority
  for (const int host : {1, 2}) {
    CopySecrets(host, {"token", "ca.crt", "ca.key"});
    ASSERT_NO_FATAL_FAILURE(StartMember(host));
  }
  ASSERT_NO_FATAL_FAILURE(StartFront());
  ASSERT_TRUE(Until([&] { return Members().size() == 3; })) << front_->Err();
  ASSERT_TRUE(Write(100));
  // A member is killed, put out, and filled when it is back.
  members_[1].reset();
  ASSERT_TRUE(Write(50));
  ASSERT_NO_FATAL_FAILURE(StartMember(1));
  ASSERT_TRUE(Until([&] { return Members().size() == 3; })) << front_->Err() << members_[1]->Err();
  ASSERT_TRUE(Write(50));
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere());
  // Every key went over the network to a member at least, and once more to the one that was filled.
  EXPECT_GT(eavesdropper.bytes(), 200 * sizeof kSecret);
  EXPECT_FALSE(eavesdropper.Heard()) << "in clear text over the bridge";
}

// It got its token and its certificate when it joined; the authority's key stays at the head.
TEST_F(ChainNetworkTest, AMachineThatHasJoinedAsANodeMayKeepAMember) {
  const auto manta = [this](int host, const std::vector<std::string>& words) {
    std::vector<std::string> all = hosts_->Exec(host);
    all.insert(all.end(), {ProgramFolder() + "/manta", "--secrets", Secrets(host)});
    all.insert(all.end(), words.begin(), words.end());
    Child child(IpProgram(), all);
    EXPECT_EQ(child.Finish(40s), 0) << words[0] << ": " << child.Err();
    return child.Out();
  };
  manta(0, {"start", "--head", "--listen", Hosts::address(0) + ":6300", "--cpus", "1"});
  std::string token = manta(0, {"token"});
  while (!token.empty() && token.back() == '\n') token.pop_back();
  const std::string file = folder_.path() + "/token";
  std::ofstream(file) << token << "\n";
  manta(1, {"start", "--join", Hosts::address(0) + ":6300", "--token-file", file, "--cpus", "1"});
  EXPECT_FALSE(std::filesystem::exists(Secrets(1) + "/ca.key"));
  for (const int host : {0, 1}) ASSERT_NO_FATAL_FAILURE(StartMember(host));
  ASSERT_NO_FATAL_FAILURE(StartFront());
  EXPECT_TRUE(Until([&] { return Members().size() == 2; })) << front_->Err() << members_[1]->Err();
  EXPECT_TRUE(Write(20));
  for (const int host : {1, 0}) manta(host, {"stop"});
}

// It knows the token, but its certificate is of an authority that it has made itself.
TEST_F(ChainNetworkTest, AMemberOfAnotherAuthorityIsNotSpokenWith) {
  ASSERT_NO_FATAL_FAILURE(StartMember(0));
  CopySecrets(1, {"token", "ca.crt", "ca.key"});
  ASSERT_NO_FATAL_FAILURE(StartMember(1));
  CopySecrets(2, {"token"});
  ASSERT_NO_FATAL_FAILURE(StartMember(2));
  ASSERT_NO_FATAL_FAILURE(StartFront());
  ASSERT_TRUE(Until([&] { return Members().size() == 2; })) << front_->Err();
  ASSERT_TRUE(Until([&] { return members_[2]->Err().find("TLS failed") != std::string::npos; })) << members_[2]->Err();
  ASSERT_TRUE(Write(20));
  EXPECT_THAT(Members(), ::testing::ElementsAre(1, 2));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/member-2/chain")) << "it was told which chain this is";
}

// Its certificate is good, but it does not know the token: it is of another cluster of the same authority.
TEST_F(ChainNetworkTest, AMemberWithoutTheTokenIsNotSpokenWith) {
  ASSERT_NO_FATAL_FAILURE(StartMember(0));
  CopySecrets(1, {"token", "ca.crt", "ca.key"});
  ASSERT_NO_FATAL_FAILURE(StartMember(1));
  CopySecrets(2, {"ca.crt", "ca.key"});
  ASSERT_NO_FATAL_FAILURE(StartMember(2));
  ASSERT_NO_FATAL_FAILURE(StartFront());
  ASSERT_TRUE(Until([&] { return Members().size() == 2; })) << front_->Err();
  ASSERT_TRUE(Until([&] { return members_[2]->Err().find("cluster") != std::string::npos; })) << members_[2]->Err();
  ASSERT_TRUE(Write(20));
  EXPECT_THAT(Members(), ::testing::ElementsAre(1, 2));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/member-2/chain")) << "it was told which chain this is";
}

}  // namespace
}  // namespace manta::testing
