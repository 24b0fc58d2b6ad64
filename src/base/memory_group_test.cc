#include "base/memory_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace manta::base {
namespace {

class MemoryGroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "manta-groups-" + std::to_string(getpid());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  [[nodiscard]] std::vector<MemoryGroup> Read() const { return base::MemoryGroups(root_, root_ + "/self"); }
  [[nodiscard]] std::uint64_t Kills() const { return MemoryKills(root_, root_ + "/self"); }

  std::string root_;
};

TEST_F(MemoryGroups, OfVersionTwoAreReadUpToTheRoot) {
  Write("/self", "0::/a/b\n");
  Write("/a/b/memory.max", "1000\n");
  Write("/a/b/memory.current", "700\n");
  Write("/a/b/memory.stat", "anon 400\nactive_file 100\ninactive_file 200\n");
  Write("/a/b/memory.events", "low 0\noom 4\noom_kill 3\n");
  Write("/a/memory.max", "max\n");
  Write("/a/memory.current", "900\n");
  const std::vector<MemoryGroup> groups = Read();
  ASSERT_EQ(groups.size(), 1U) << "the others have no limit";
  EXPECT_EQ(groups[0].folder, root_ + "/a/b");
  EXPECT_EQ(groups[0].limit, 1000U);
  EXPECT_EQ(groups[0].used, 400U);
  EXPECT_EQ(Kills(), 3U);
}

TEST_F(MemoryGroups, OfVersionOneAreReadWhereMemoryIsInItsHands) {
  Write("/self", "8:pids:/\n4:cpu,memory:/x/y\n0::/z\n");
  Write("/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/memory/x/y/memory.usage_in_bytes", "5\n");
  Write("/memory/x/y/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  Write("/memory/x/memory.limit_in_bytes", "4096\n");
  Write("/memory/x/memory.usage_in_bytes", "3000\n");
  Write("/memory/x/memory.stat", "active_file 1\ntotal_active_file 500\ntotal_inactive_file 500\n");
  const std::vector<MemoryGroup> groups = Read();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].limit, 4096U);
  EXPECT_EQ(groups[0].used, 2000U);
  EXPECT_EQ(Kills(), 7U);
}

TEST_F(MemoryGroups, ThatMakeNoSenseAreNone) {
  EXPECT_TRUE(Read().empty()) << "there is no file";
  Write("/self", "nonsense\n4:memory\n0::/gone\n");
  EXPECT_TRUE(Read().empty());
  Write("/self", "0::\n");
  EXPECT_TRUE(Read().empty());
}

TEST_F(MemoryGroups, OfThisMachineCanBeRead) {
  for (const MemoryGroup& group : base::MemoryGroups()) EXPECT_GT(group.limit, 0U) << group.folder;
  EXPECT_LT(MemoryKills(), 1U << 30);
}

}  // namespace
}  // namespace manta::base
