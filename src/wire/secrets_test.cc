#include "wire/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "wire/scratch_folder.h"

namespace manta::wire {
namespace {

using testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777U;
}

std::shared_ptr<Secrets> Make(const std::string& folder) {
  Result<std::shared_ptr<Secrets>> secrets = Secrets::OpenOrCreate(folder);
  EXPECT_TRUE(secrets.ok()) << secrets.status().message();
  return *secrets;
}

TEST(Secrets, AreMadeOnceClosedToOthersWhateverTheUmask) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "deep/er/manta";
  const mode_t before = umask(0);
  const auto first = Make(folder);
  umask(before);
  EXPECT_EQ(ModeOf(folder), 0700U);
  EXPECT_EQ(ModeOf(folder + "/token"), 0600U);
  const auto second = Make(folder);
  EXPECT_EQ(first->keys().token, second->keys().token);
  EXPECT_EQ(first->keys().cluster, second->keys().cluster);
  EXPECT_NE(first->keys().token, Token{});
  // No half-made files are left behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 1);
}

TEST(Secrets, OfTwoClustersDiffer) {
  const ScratchFolder scratch;
  const auto a = Make(scratch / "a");
  const auto b = Make(scratch / "b");
  EXPECT_NE(a->keys().token, b->keys().token);
  EXPECT_NE(a->keys().cluster, b->keys().cluster);
}

TEST(Secrets, OpenSaysHowToStartWhenThereAreNone) {
  const ScratchFolder scratch;
  const auto missing = Secrets::Open(scratch / "nothing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("manta start --head"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "nothing"));
}

TEST(Secrets, MadeByManyAtOnceAreTheSame) {
  const ScratchFolder scratch;
  std::vector<Token> tokens(8);
  {
    std::vector<std::thread> threads;
    for (Token& token : tokens) {
      threads.emplace_back([&] { token = Make(scratch / "manta")->keys().token; });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Token& token : tokens) EXPECT_EQ(token, tokens[0]);
}

TEST(Secrets, ATokenOthersMayReadIsRefusedWithTheRemedy) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "manta";
  Make(folder);
  for (const mode_t mode : {0640U, 0604U, 0620U, 0601U, 0644U}) {
    ASSERT_EQ(chmod((folder + "/token").c_str(), mode), 0);
    for (const auto& opened : {Secrets::Open(folder), Secrets::OpenOrCreate(folder)}) {
      ASSERT_FALSE(opened.ok()) << mode;
      EXPECT_EQ(opened.status().code(), Code::kInvalid);
      EXPECT_THAT(opened.status().message(), HasSubstr("chmod 600 " + folder + "/token"));
    }
  }
}

TEST(Secrets, AFolderOthersMayEnterIsRefusedWithTheRemedy) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "manta";
  Make(folder);
  for (const mode_t mode : {0750U, 0701U, 0755U, 0720U}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    const auto opened = Secrets::Open(folder);
    ASSERT_FALSE(opened.ok()) << mode;
    EXPECT_THAT(opened.status().message(), HasSubstr("chmod 700 " + folder));
  }
}

TEST(Secrets, OfAnotherUserAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const ScratchFolder scratch;
  const std::string folder = scratch / "manta";
  Make(folder);
  ASSERT_EQ(chown((folder + "/token").c_str(), 65534, 65534), 0);
  EXPECT_THAT(Secrets::Open(folder).status().message(), HasSubstr("belongs to user 65534"));
  ASSERT_EQ(chown((folder + "/token").c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
  EXPECT_THAT(Secrets::Open(folder).status().message(), HasSubstr("belongs to user 65534"));
}

TEST(Secrets, AreNotReadThroughASymbolicLink) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "manta";
  Make(folder);
  std::filesystem::rename(folder + "/token", scratch / "elsewhere");
  std::filesystem::create_symlink(scratch / "elsewhere", folder + "/token");
  EXPECT_THAT(Secrets::Open(folder).status().message(), HasSubstr("symbolic link"));
}

TEST(Secrets, RotationIsSeenByOthersAndKeepsTheOldTokenForTheGrace) {
  const ScratchFolder scratch;
  const auto mine = Make(scratch / "manta");
  const auto theirs = Make(scratch / "manta");
  const Keys before = mine->keys();
  const std::int64_t now = UnixNow();
  ASSERT_TRUE(mine->RotateToken(60).ok());
  const Keys after = theirs->keys();
  EXPECT_NE(after.token, before.token);
  EXPECT_EQ(after.cluster, before.cluster);
  EXPECT_TRUE(after.has_previous);
  EXPECT_EQ(after.previous, before.token);
  EXPECT_GE(after.previous_until, now + 60);
  EXPECT_LE(after.previous_until, now + 70);
  EXPECT_EQ(ModeOf(scratch / "manta/token"), 0600U);
  // Without a grace nothing old is left, not even in the file.
  ASSERT_TRUE(theirs->RotateToken(0).ok());
  EXPECT_FALSE(mine->keys().has_previous);
  std::ifstream file(scratch / "manta/token");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text.find(ToHexText(after.token)), std::string::npos);
  EXPECT_EQ(text.find(ToHexText(before.token)), std::string::npos);
}

TEST(Secrets, ANodeTakesOverARotatedTokenOnce) {
  const ScratchFolder scratch;
  const auto head = Make(scratch / "head");
  const auto node = Make(scratch / "node");
  ASSERT_TRUE(node->InstallToken(head->keys().token, 0).ok());
  EXPECT_EQ(node->keys().token, head->keys().token);
  ASSERT_TRUE(head->RotateToken(60).ok());
  ASSERT_TRUE(node->InstallToken(head->keys().token, 60).ok());
  ASSERT_TRUE(node->InstallToken(head->keys().token, 60).ok());  // told twice
  EXPECT_EQ(node->keys().previous, head->keys().previous);
}

TEST(Secrets, ATokenFileThatIsNoneIsCorruptAndIsNotReplaced) {
  const Keys keys{Id{1, 2}, RandomBytes<32>(), true, RandomBytes<32>(), 12345};
  const std::string good = FormatKeys(keys);
  ASSERT_TRUE(ParseKeys(good).ok());
  EXPECT_EQ(FormatKeys(ParseKeys(good).value()), good);
  for (std::size_t size = 0; size < good.size(); ++size) {
    const Result<Keys> cut = ParseKeys(std::string_view(good).substr(0, size));
    // Cut at the end of a line it may be whole; cut elsewhere it must not give a wrong token.
    if (cut.ok()) {
      EXPECT_EQ(cut.value().token, keys.token) << size;
    }
  }
  EXPECT_FALSE(ParseKeys(good + "x").ok());
  EXPECT_FALSE(ParseKeys("").ok());

  const ScratchFolder scratch;
  const std::string folder = scratch / "manta";
  Make(folder);
  std::ofstream(folder + "/token") << "hello";
  EXPECT_EQ(Secrets::OpenOrCreate(folder).status().code(), Code::kCorrupt);
}

TEST(Secrets, TheDefaultFolderFollowsItsOwnVariableThenXdgThenHome) {
  const char* const state = std::getenv("XDG_STATE_HOME");
  const std::string saved = state != nullptr ? state : "";
  const char* const named = std::getenv("MANTA_SECRETS");
  const std::string before = named != nullptr ? named : "";
  setenv("MANTA_SECRETS", "/named", 1);
  setenv("XDG_STATE_HOME", "/somewhere", 1);
  EXPECT_EQ(Secrets::DefaultFolder(), "/named");
  unsetenv("MANTA_SECRETS");
  EXPECT_EQ(Secrets::DefaultFolder(), "/somewhere/manta");
  unsetenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  if (home != nullptr) {
    EXPECT_EQ(Secrets::DefaultFolder(), std::string(home) + "/.manta");
  }
  if (state != nullptr) setenv("XDG_STATE_HOME", saved.c_str(), 1);
  if (named != nullptr) setenv("MANTA_SECRETS", before.c_str(), 1);
}

}  // namespace
}  // namespace manta::wire
