// A store that is too small: values move to disk and come back, writers wait for room, and what can
// never fit is refused with the numbers.
#include <sys/mount.h>

#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = 1 << 20;

// A value that can be told from every other.
std::vector<std::uint32_t> Pattern(std::uint32_t seed, std::size_t bytes) {
  std::vector<std::uint32_t> values(bytes / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = seed * 2'654'435'761U + static_cast<std::uint32_t>(i);
  return values;
}
bool IsPattern(const Array<std::uint32_t>& values, std::uint32_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != seed * 2'654'435'761U + static_cast<std::uint32_t>(i)) return false;
  }
  return true;
}

class SmallStore : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.store_bytes = 64 * kMiB;
    config.spill_folder = spill_.path();
    return config;
  }
  Folder spill_;
};

TEST_F(SmallStore, MoreThanFitsIsSpilledAndReadBack) {
  std::vector<Ref<Array<std::uint32_t>>> refs;
  for (std::uint32_t i = 0; i < 40; ++i) refs.emplace_back(Put(Pattern(i, 8 * kMiB)));  // 320 MiB
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Array<std::uint32_t> values = refs[i].Get();
    ASSERT_EQ(values.size(), 2 * kMiB);
    ASSERT_TRUE(IsPattern(values, i)) << "object " << i;
  }
  EXPECT_TRUE(IsPattern(refs[0].Get(), 0)) << "and once more";
}

TEST_F(SmallStore, TasksReadWhatWasSpilled) {
  std::vector<Ref<Array<std::uint32_t>>> refs;
  for (std::uint32_t i = 0; i < 20; ++i) refs.emplace_back(Put(Pattern(i, 8 * kMiB)));
  std::vector<Ref<bool>> good;
  for (std::uint32_t i = 0; i < 20; ++i) good.push_back(Task(IsPattern).Remote(refs[i], i));
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_TRUE(good[i].Get(60s)) << "object " << i;
}

TEST_F(SmallStore, ResultsOfTasksAreSpilledToo) {
  std::vector<Ref<std::vector<std::uint32_t>>> refs;
  for (std::uint32_t i = 0; i < 20; ++i) refs.push_back(Task(Pattern).Remote(i, 8 * kMiB));
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(refs[i].Get(60s), Pattern(i, 8 * kMiB)) << "object " << i;
}

TEST_F(SmallStore, ATaskReadsMoreThanTheStoreAtOnce) {
  std::vector<Ref<Array<std::uint32_t>>> refs;
  for (std::uint32_t i = 0; i < 10; ++i) refs.emplace_back(Put(Pattern(i, 16 * kMiB)));
  const auto good = Task([](const std::vector<Ref<Array<std::uint32_t>>>& all) {
                      const std::vector<Array<std::uint32_t>> values = Get(all);
                      int count = 0;
                      for (std::uint32_t i = 0; i < values.size(); ++i) count += IsPattern(values[i], i) ? 1 : 0;
                      return count;
                    }).Remote(refs);
  EXPECT_EQ(good.Get(60s), 10);
}

TEST_F(SmallStore, WhatNobodyNeedsMakesRoomWithoutSpilling) {
  for (std::uint32_t i = 0; i < 100; ++i) Put(Pattern(i, 8 * kMiB));
  EXPECT_EQ(Task([] { return 1; }).Remote().Get(), 1);
}

TEST_F(SmallStore, AWriterWaitsUntilAReaderLetsGo) {
  // What is being looked at cannot move, so the store is full until the Arrays go.
  std::vector<Array<std::uint32_t>> seen;
  for (std::uint32_t i = 0; i < 6; ++i) {
    Ref<Array<std::uint32_t>> ref = Put(Pattern(i, 8 * kMiB));
    seen.push_back(ref.Get());
  }
  std::thread reader([&seen] {
    std::this_thread::sleep_for(200ms);
    seen.clear();
  });
  Ref<Array<std::uint32_t>> large = Put(Pattern(99, 32 * kMiB));
  reader.join();
  EXPECT_TRUE(IsPattern(large.Get(), 99));
}

TEST_F(SmallStore, AValueLargerThanTheStoreIsRefusedWithTheNumbers) {
  const std::string text = MessageOf<OutOfMemoryError>([] { Put(std::vector<std::uint32_t>(25 * kMiB)); });
  EXPECT_THAT(text, AllOf(HasSubstr("100"), HasSubstr("64"), HasSubstr("MiB"), HasSubstr("store_bytes")));
  const std::string in_task = MessageOf<Error>(
      [] { Task([] { return std::vector<std::uint32_t>(25 * kMiB); }).SetName("huge").Remote().Get(20s); });
  EXPECT_THAT(in_task, AllOf(HasSubstr("huge"), HasSubstr("store_bytes")));
  EXPECT_EQ(Get(Put(1)), 1) << "the store goes on";
}

TEST_F(SmallStore, AnArgumentLargerThanTheStoreIsRefusedToo) {
  EXPECT_THROW(Task([](const std::vector<std::uint32_t>& v) { return v.size(); }).Remote(Pattern(1, 100 * kMiB)),
               OutOfMemoryError);
}

TEST_F(SmallStore, NoNamedFileIsEverInTheSpillFolder) {
  std::vector<Ref<Array<std::uint32_t>>> refs;
  for (std::uint32_t i = 0; i < 20; ++i) refs.emplace_back(Put(Pattern(i, 8 * kMiB)));
  EXPECT_THAT(spill_.Files(), ::testing::IsEmpty());
}

// ---- a disk that is too small as well ----

class SmallDisk : public SmallStore {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = SmallStore::MakeConfig();
    config.spill_bytes = 32 * kMiB;
    return config;
  }
};

TEST_F(SmallDisk, WhenStoreAndSpillAreFullAPutFailsWithTheNumbersAndGoesOnLater) {
  std::vector<Ref<Array<std::uint32_t>>> refs;
  const std::string text = MessageOf<Error>([&] {
    for (std::uint32_t i = 0; i < 40; ++i) refs.emplace_back(Put(Pattern(i, 8 * kMiB)));
  });
  EXPECT_THAT(text, AllOf(HasSubstr("MiB"), HasSubstr("spill")));
  EXPECT_GE(refs.size(), 9U) << "64 MiB of store and 32 of disk hold this much";
  refs.resize(refs.size() - 4);  // reading back what was spilled needs some room
  for (std::uint32_t i = 0; i < refs.size(); ++i) EXPECT_TRUE(IsPattern(refs[i].Get(), i)) << "object " << i;
  refs.clear();
  Ref<Array<std::uint32_t>> after = Put(Pattern(7, 8 * kMiB));
  EXPECT_TRUE(IsPattern(after.Get(), 7));
}

// A file system of 16 MiB as the spill folder, if we may mount one.
class FullDisk : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.store_bytes = 64 * kMiB;
    config.spill_folder = disk_.path();
    return config;
  }
  void SetUp() override {
    mounted_ = mount("tmpfs", disk_.path().c_str(), "tmpfs", 0, "size=16m") == 0;
    ClusterTest::SetUp();
  }
  void TearDown() override {
    ClusterTest::TearDown();
    if (mounted_) {
      EXPECT_EQ(umount(disk_.path().c_str()), 0) << "somebody still holds a file there";
    }
  }
  Folder disk_;
  bool mounted_ = false;
};

TEST_F(FullDisk, ADiskThatRunsFullIsATypedErrorAndNothingStoredIsLost) {
  if (!mounted_) GTEST_SKIP() << "needs the right to mount a tmpfs";
  std::vector<Ref<Array<std::uint32_t>>> refs;
  const std::string text = MessageOf<Error>([&] {
    for (std::uint32_t i = 0; i < 40; ++i) refs.emplace_back(Put(Pattern(i, 8 * kMiB)));
  });
  EXPECT_THAT(text, HasSubstr(disk_.path()));
  ASSERT_GE(refs.size(), 5U);
  refs.resize(refs.size() - 4);  // reading back what was spilled needs some room
  for (std::uint32_t i = 0; i < refs.size(); ++i) EXPECT_TRUE(IsPattern(refs[i].Get(), i)) << "object " << i;
  refs.clear();
  EXPECT_EQ(Get(Put(1)), 1);
}

TEST(SpillFolder, ThatDoesNotExistIsABadConfiguration) {
  Config config;
  config.cpus = 1;
  config.spill_folder = "/no/such/folder";
  EXPECT_THAT(MessageOf<InvalidError>([&] { Init(config); }), HasSubstr("/no/such/folder"));
  EXPECT_FALSE(IsInitialized());
}

}  // namespace
}  // namespace manta::testing
