#include "shm/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace manta::shm {
namespace {

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<base::Fd> fd = Journal::Make();
    ASSERT_TRUE(fd.ok());
    fd_ = std::move(*fd);
  }
  // As the next worker gets it.
  Journal Open() {
    Result<Journal> journal = Journal::Open(base::Fd(dup(fd_.get())));
    EXPECT_TRUE(journal.ok()) << journal.status().message();
    return std::move(*journal);
  }
  static void Record(Journal& journal, std::uint64_t number, std::uint64_t arguments = 16) {
    SpecHeader header;
    header.bytes = static_cast<std::uint32_t>(sizeof header + arguments);
    header.id = Id{number, 1};
    std::byte* room = journal.Begin(header.bytes);
    ASSERT_NE(room, nullptr);
    std::memcpy(room, &header, sizeof header);
    std::memset(room + sizeof header, static_cast<int>(number), arguments);
    journal.Commit(number * 3, number % 2 == 1);
  }
  static std::vector<std::uint64_t> Numbers(const Journal& journal) {
    std::vector<std::uint64_t> numbers;
    EXPECT_TRUE(journal
                    .ForCalls([&](const CallRecord& record, const std::byte* spec, std::uint64_t bytes) {
                      Result<SpecReader> reader = SpecReader::Open(spec, bytes);
                      EXPECT_TRUE(reader.ok());
                      numbers.push_back(reader->header().id.hi);
                      EXPECT_EQ(record.digest, numbers.back() * 3);
                      EXPECT_EQ(record.failed, numbers.back() % 2);
                      return true;
                    })
                    .ok());
    return numbers;
  }
  static std::span<const std::byte> BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

  base::Fd fd_;
};

TEST_F(JournalTest, CallsAreThereForTheNextInTheirOrder) {
  {
    Journal journal = Open();
    for (std::uint64_t i = 1; i <= 1000; ++i) Record(journal, i, 8 * (i % 5));
    ASSERT_NE(journal.Begin(sizeof(SpecHeader)), nullptr) << "killed while it ran the next";
  }
  const Journal journal = Open();
  EXPECT_EQ(journal.calls(), 1000U);
  EXPECT_FALSE(journal.has_state());
  const std::vector<std::uint64_t> numbers = Numbers(journal);
  ASSERT_EQ(numbers.size(), 1000U);
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(numbers[i], i + 1);
}

TEST_F(JournalTest, ACheckpointTakesThePlaceOfTheCallsBeforeIt) {
  Journal first = Open();
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t i = 1; i <= 3; ++i) Record(first, i);
    const std::string state(static_cast<std::size_t>(round * 7 + 1), static_cast<char>('a' + round));
    ASSERT_TRUE(first.Checkpoint(BytesOf(state)));
    Record(first, 9);
    const Journal next = Open();
    ASSERT_TRUE(next.has_state());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(next.state().data()), next.state().size()), state);
    EXPECT_EQ(Numbers(next), std::vector<std::uint64_t>{9});
    EXPECT_EQ(next.calls_before(), static_cast<std::uint64_t>(4 * round + 3));
  }
}

TEST_F(JournalTest, MemoryOfManyCallsIsGivenBackByACheckpoint) {
  Journal journal = Open();
  for (std::uint64_t i = 1; i <= 100; ++i) Record(journal, i, 1U << 20);
  struct stat before{};
  ASSERT_EQ(fstat(fd_.get(), &before), 0);
  EXPECT_GT(before.st_blocks * 512, 100 << 20);
  ASSERT_TRUE(journal.Checkpoint({}));
  struct stat after{};
  ASSERT_EQ(fstat(fd_.get(), &after), 0);
  EXPECT_LT(after.st_blocks * 512, 1 << 20);
}

TEST_F(JournalTest, AnswersAreKeptUntilNewerOnesNeedTheRoom) {
  Journal journal = Open();
  const std::string text(3000, 'x');
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < 20'000; ++i) {  // several times round
    places.push_back(journal.Keep(Id{i, 1}, i, BytesOf(text).first(i % 3000)));
  }
  AnswerRecord record;
  std::span<const std::byte> replies;
  EXPECT_FALSE(journal.Look(places[0], &record, &replies));
  std::uint64_t kept = 0;
  std::uint64_t last = 0;
  const Journal next = Open();
  next.ForAnswers([&](const AnswerRecord& answer, std::uint64_t place) {
    ++kept;
    last = answer.call.hi;
    EXPECT_EQ(places[last], place);
    ASSERT_TRUE(next.Look(place, &record, &replies));
    EXPECT_EQ(record.digest, last);
    ASSERT_EQ(replies.size(), Padded(last % 3000));
    if (!replies.empty()) {
      EXPECT_EQ(static_cast<char>(replies[0]), 'x');
    }
  });
  EXPECT_EQ(last, 19'999U);
  EXPECT_GT(kept, 2'000U);
  EXPECT_LT(kept, 4'000U);
}

TEST_F(JournalTest, AnAnswerThatIsTooLargeIsOnlyNamed) {
  Journal journal = Open();
  const std::string text(kMostKept + 1, 'x');
  const std::uint64_t place = journal.Keep(Id{5, 1}, 6, BytesOf(text));
  AnswerRecord record;
  std::span<const std::byte> replies;
  ASSERT_TRUE(journal.Look(place, &record, &replies));
  EXPECT_EQ(record.none, 2U);
  EXPECT_TRUE(replies.empty());
}

TEST_F(JournalTest, WhatIsGivenUpStaysSo) {
  {
    Journal journal = Open();
    Record(journal, 1);
    EXPECT_EQ(journal.given_up(), 0U);
    journal.GiveUp();
  }
  EXPECT_EQ(Open().given_up(), 2U);
  EXPECT_EQ(Open().calls(), 1U);
}

TEST_F(JournalTest, AProcessKilledAtAnyMomentLeavesWholeRecordsAndACheckpoint) {
  for (int round = 0; round < 20; ++round) {
    SetUp();
    const pid_t writer = fork();
    if (writer == 0) {
      Journal journal = Open();
      for (std::uint64_t i = 1;; ++i) {
        Record(journal, i, 8 * (i % 9));
        journal.Keep(Id{i, 1}, i, {});
        if (i % 100 == 0) {
          const std::string state(static_cast<std::size_t>(i % 3000 + 8), static_cast<char>(i));
          if (!journal.Checkpoint(BytesOf(state))) _exit(1);
        }
      }
    }
    usleep(static_cast<useconds_t>(200 + 300 * round));
    kill(writer, SIGKILL);
    ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
    const Journal journal = Open();
    const std::vector<std::uint64_t> numbers = Numbers(journal);
    for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], journal.calls_before() + i + 1);
    ASSERT_LE(numbers.size(), 100U);
    for (const std::byte byte : journal.state()) ASSERT_EQ(byte, static_cast<std::byte>(journal.calls_before()));
    journal.ForAnswers([&](const AnswerRecord& answer, std::uint64_t) { ASSERT_EQ(answer.call.hi, answer.digest); });
  }
}

TEST_F(JournalTest, SomethingElseIsRefused) {
  Result<base::Fd> other = MakeMemory("other", kJournalBytes);
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(pwrite(other->get(), "nonsense", 8, 0), 8);
  EXPECT_EQ(Journal::Open(std::move(*other)).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace manta::shm
