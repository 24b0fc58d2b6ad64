#include "shm/journal_copy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

#include "shm/journal.h"

namespace manta::shm {
namespace {

base::Fd Fresh() {
  Result<base::Fd> fd = Journal::Make();
  EXPECT_TRUE(fd.ok());
  return std::move(*fd);
}
Journal Open(const base::Fd& fd) {
  Result<Journal> journal = Journal::Open(base::Fd(dup(fd.get())));
  EXPECT_TRUE(journal.ok());
  return std::move(*journal);
}
void Record(Journal& journal, std::uint64_t number, std::uint64_t arguments) {
  SpecHeader header;
  header.bytes = static_cast<std::uint32_t>(sizeof header + 8 * arguments);
  header.id = Id{number, 1};
  std::byte* room = journal.Begin(header.bytes);
  ASSERT_NE(room, nullptr);
  std::memset(room, 7, header.bytes);
  std::memcpy(room, &header, sizeof header);
  journal.Commit(number, false);
}

void ExpectSame(const Journal& a, const Journal& b) {
  ASSERT_EQ(a.calls(), b.calls());
  ASSERT_EQ(a.calls_before(), b.calls_before());
  ASSERT_EQ(a.has_state(), b.has_state());
  ASSERT_EQ(a.given_up(), b.given_up());
  ASSERT_EQ(a.state().size(), b.state().size());
  ASSERT_EQ(std::memcmp(a.state().data(), b.state().data(), a.state().size()), 0);
  const auto numbers = [](const Journal& journal) {
    std::vector<std::uint64_t> out;
    EXPECT_TRUE(journal
                    .ForCalls([&](const CallRecord& record, const std::byte*, std::uint64_t bytes) {
                      out.push_back(record.digest);
                      out.push_back(bytes);
                      return true;
                    })
                    .ok());
    return out;
  };
  ASSERT_EQ(numbers(a), numbers(b));
  const auto answers = [](const Journal& journal) {
    std::vector<std::uint64_t> out;
    journal.ForAnswers([&](const AnswerRecord& record, std::uint64_t place) {
      out.push_back(record.call.hi);
      out.push_back(place);
    });
    return out;
  };
  ASSERT_EQ(answers(a), answers(b));
}

TEST(JournalCopy, RangesLieInTheJournalAndNameWhatTheirBytesAre) {
  const base::Fd original = Fresh();
  Journal journal = Open(original);
  JournalMarks marks;
  Record(journal, 1, 10);
  const std::string state(5000, 's');
  ASSERT_TRUE(journal.Checkpoint(std::as_bytes(std::span(state))));
  const std::vector<JournalRange> ranges = RangesOf(journal.data(), &marks);
  EXPECT_TRUE(Check(ranges).ok());
  EXPECT_GE(BytesOf(ranges), 5000U);
  EXPECT_EQ(ranges.back().offset, 0U) << "the header comes last: until then the copy is what it was";
  const std::vector<JournalPart> parts = Read(journal.data(), ranges);
  ASSERT_EQ(parts.size(), ranges.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].offset, ranges[i].offset);
    EXPECT_EQ(parts[i].bytes.size(), ranges[i].bytes);
  }
  EXPECT_TRUE(RangesOf(journal.data(), &marks).empty());
  EXPECT_FALSE(Check({{kJournalBytes - 1, 2}}).ok());
  EXPECT_FALSE(Check({{kJournalBytes + 1, 0}}).ok());
}

TEST(JournalCopy, IsTheSameAfterEveryChangeThatItWasTold) {
  const base::Fd original = Fresh();
  const base::Fd copy = Fresh();
  Journal journal = Open(original);
  JournalMarks marks;
  std::minstd_rand random(1);
  const std::string text(200'000, 'x');
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    Record(journal, i, random() % 50);
    if (random() % 3 == 0) journal.Keep(Id{i, 1}, i, std::as_bytes(std::span(text)).first(random() % text.size()));
    if (random() % 40 == 0) {
      ASSERT_TRUE(journal.Checkpoint(std::as_bytes(std::span(text)).first(random() % 1000)));
    }
    if (random() % 5 != 0) continue;
    for (const std::vector<JournalPart>& group : Split(ChangesOf(journal.data(), &marks), 10'000)) {
      ASSERT_TRUE(Write(copy.get(), group).ok());
    }
    ExpectSame(journal, Open(copy));
    EXPECT_TRUE(ChangesOf(journal.data(), &marks).empty()) << "nothing has happened since";
  }
  const base::Fd whole = Fresh();
  Result<std::vector<JournalPart>> all = AllOf(original.get());
  ASSERT_TRUE(all.ok());
  ASSERT_TRUE(Write(whole.get(), *all).ok());
  ExpectSame(journal, Open(whole));
}

TEST(JournalCopy, OfNothingIsNothing) {
  const base::Fd fresh = Fresh();
  Result<std::vector<JournalPart>> all = AllOf(fresh.get());
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->empty());
}

TEST(JournalCopy, APartOutsideIsRefused) {
  const base::Fd copy = Fresh();
  EXPECT_EQ(Write(copy.get(), {{kJournalBytes - 1, "ab"}}).code(), Code::kCorrupt);
  EXPECT_EQ(Write(copy.get(), {{~0ULL, "ab"}}).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace manta::shm
