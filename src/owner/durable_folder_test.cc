// Durable values in the folder of a job: what a disk does to them that takes no more.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "owner/durable.h"

namespace manta::owner {
namespace {

class DurableFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/manta_durable_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  [[nodiscard]] std::size_t Files() const {
    std::error_code error;
    std::size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder_ + "/objects", error)) {
      count += file.is_regular_file() ? 1 : 0;
    }
    return count;
  }

  std::string folder_;
};

TEST_F(DurableFolder, AValueThatFindsNoRoomIsAnErrorAndLeavesNothingAndAnotherOneDoes) {
  const std::vector<std::byte> small(1000, std::byte{1});
  const std::vector<std::byte> large(1U << 20, std::byte{2});
  ASSERT_TRUE(KeepInFolder(folder_, Id{1, 1}, small).ok());
  // Files cannot grow beyond this: as on a full disk, a part is written, and the rest is not.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{64U << 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status status = KeepInFolder(folder_, Id{2, 1}, large);
  const Status again = KeepInFolder(folder_, Id{3, 1}, small);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find("1.0 MiB"), std::string::npos) << status.message();
  EXPECT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(Files(), 2U);
  EXPECT_EQ(FindInFolder(folder_, Id{2, 1}).status().code(), Code::kNotFound);
  const Result<std::vector<std::byte>> found = FindInFolder(folder_, Id{1, 1});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), small);
  ASSERT_TRUE(KeepInFolder(folder_, Id{2, 1}, large).ok());
  EXPECT_EQ(Files(), 3U);
}

}  // namespace
}  // namespace manta::owner
