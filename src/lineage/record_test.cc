#include "lineage/record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "lineage/file.h"
#include "lineage/folder.h"
#include "lineage/scan.h"
#include "lineage/test_ring.h"

namespace manta::lineage {
namespace {

struct Told {
  struct Task {
    std::uint64_t sequence;
    Id id;
    std::string name;
    Id actor;
    std::vector<std::byte> arguments;
    bool whole;
  };
  struct Outcome {
    std::uint64_t sequence;
    std::uint32_t index;
    OutcomeKind kind;
    std::vector<std::byte> value;
    std::uint64_t size;
    std::string message;
  };
  std::vector<Task> tasks;
  std::vector<Outcome> outcomes;
};

class Listener : public BlockSink {
 public:
  void OnBlock(ProcessId) override {}
  void OnTask(const TaskRecord& task) override {
    told.tasks.push_back({task.sequence,
                          task.id,
                          task.function->name,
                          task.function->actor,
                          {task.arguments.begin(), task.arguments.end()},
                          task.whole});
  }
  void OnOutcome(const OutcomeRecord& outcome) override {
    early |= outcome.sequence > told.tasks.size();
    told.outcomes.push_back({outcome.sequence,
                             outcome.index,
                             outcome.kind,
                             {outcome.value.begin(), outcome.value.end()},
                             outcome.size,
                             std::string(outcome.message)});
  }
  Told told;
  bool early = false;  // an answer came before its call
};

const Id kJob{7, 9};

TEST(LineageRecord, CallsAndOutcomesComeBackAsTheyWere) {
  TestRing ring;
  Encoder encoder(ring.memory());
  std::mt19937_64 random(1);
  std::vector<std::vector<std::byte>> arguments;
  std::vector<std::vector<std::byte>> values;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    arguments.push_back(RandomBytes(random, i % 7 == 0 ? 8 * (random() % 100) : 16));
    values.push_back(RandomBytes(random, i % 5 == 0 ? random() % 600 : 20));
    const CallOrigin origin{i % 11 == 0 ? Id{i, 3} : kJob, i % 3, i};
    const std::uint64_t sequence = encoder.Task(origin, HeaderOf(i % 4), i % 4 == 1 ? "named" : "",
                                                i % 4 == 2 ? Id{5, 5} : Id{}, arguments.back());
    EXPECT_EQ(sequence, i + 1);
    if (i % 13 == 0) continue;
    if (i % 17 == 0) {
      encoder.Failed(sequence, 0, Failure{Code::kTaskFailed, "went wrong", {}, {}});
    } else if (i % 19 == 0) {
      encoder.Stored(sequence, 2, 1U << 20);
    } else {
      encoder.Value(sequence, 0, values.back());
    }
  }
  encoder.Settle();
  Listener listener;
  ring.Decode(listener);
  ASSERT_EQ(listener.told.tasks.size(), 3000U);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Told::Task& task = listener.told.tasks[i];
    EXPECT_EQ(task.id, DeriveId(i % 11 == 0 ? Id{i, 3} : kJob, i % 3, i));
    EXPECT_EQ(task.arguments, arguments[i]);
    EXPECT_EQ(task.name, i % 4 == 1 ? "named" : "");
    EXPECT_EQ(task.actor, i % 4 == 2 ? (Id{5, 5}) : Id{});
  }
  for (const Told::Outcome& outcome : listener.told.outcomes) {
    const std::uint64_t i = outcome.sequence - 1;
    if (outcome.kind == OutcomeKind::kValue) {
      EXPECT_EQ(outcome.value, values[i]);
    }
    if (outcome.kind == OutcomeKind::kFailed) {
      EXPECT_EQ(outcome.message, "went wrong");
    }
    if (outcome.kind == OutcomeKind::kStored) {
      EXPECT_EQ(outcome.size, 1U << 20);
      EXPECT_EQ(outcome.index, 2U);
    }
  }
}

TEST(LineageRecord, ARunOfCallsAndAnswersThatAreAsExpectedIsAFewBytes) {
  TestRing ring;
  Encoder encoder(ring.memory());
  constexpr std::uint64_t kCalls = 10'000;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const std::uint64_t argument[2] = {shm::ItemWord(shm::ItemKind::kValue, 8), i};
    const std::uint64_t sequence = encoder.Task({kJob, 0, i}, HeaderOf(0), "", {}, std::as_bytes(std::span(argument)));
    encoder.Value(sequence, 0, std::as_bytes(std::span(&i, 1)));
  }
  encoder.Settle();
  EXPECT_LT(ring.memory()->tail.load(), 200U);
  Listener listener;
  ring.Decode(listener);
  ASSERT_EQ(listener.told.tasks.size(), kCalls);
  ASSERT_EQ(listener.told.outcomes.size(), kCalls);
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    ASSERT_EQ(listener.told.tasks[i].id, DeriveId(kJob, 0, i));
    ASSERT_EQ(std::memcmp(listener.told.tasks[i].arguments.data() + 8, &i, 8), 0);
    ASSERT_EQ(std::memcmp(listener.told.outcomes[i].value.data(), &i, 8), 0);
  }
}

TEST(LineageRecord, AChapterEndsAlsoIfItsCallsAreOnlyCounted) {
  TestRing ring;
  Encoder encoder(ring.memory());
  std::uint64_t chapters = 1;
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < 3'000'000; ++i) {
    encoder.Task({kJob, 0, i}, HeaderOf(0), "", {}, {});
    if (i % 1000 == 0) encoder.Settle();
    if (std::exchange(last, ring.memory()->chapter.load()) != last) ++chapters;
  }
  EXPECT_EQ(chapters, 3U);
}

TEST(LineageRecord, WhatIsNotAsItWasExpectedComesBackAsItWasAllTheSame) {
  TestRing ring;
  Encoder encoder(ring.memory());
  std::mt19937_64 random(11);
  Told told;
  std::uint64_t words[12] = {};
  std::uint64_t steps[12] = {};
  std::size_t argument_words = 1;
  std::size_t value_bytes = 20;
  std::size_t answered = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    // Counters, up and down, that now and then stop, jump, or get more or fewer words.
    if (random() % 40 == 0) steps[random() % 12] = random() % 5 - 2;
    if (random() % 60 == 0) words[random() % 12] = random() >> (random() % 64);
    if (random() % 300 == 0) argument_words = random() % 12;
    if (random() % 200 == 0) value_bytes = random() % (sizeof words + 1);
    for (std::size_t j = 0; j < 12; ++j) words[j] += steps[j];
    const std::span<const std::byte> bytes = std::as_bytes(std::span(words));
    const std::span<const std::byte> arguments = bytes.first(8 * argument_words);
    const std::span<const std::byte> value = bytes.first(value_bytes);
    const shm::SpecHeader header = HeaderOf(random() % 50 == 0 ? 1 : 0);
    const std::uint64_t sequence = encoder.Task({kJob, 0, i}, header, "", {}, arguments);
    EXPECT_EQ(sequence, i + 1);
    if (random() % 100 == 0) encoder.Settle();
    if (random() % 500 == 0) continue;  // it has no answer
    told.tasks.push_back({sequence, {}, "", {}, {arguments.begin(), arguments.end()}, true});
    told.outcomes.push_back({sequence, 0, OutcomeKind::kValue, {value.begin(), value.end()}, value.size(), ""});
    // Answers come later than calls.
    for (; random() % 8 != 0 && answered < told.outcomes.size(); ++answered) {
      encoder.Value(told.outcomes[answered].sequence, 0, told.outcomes[answered].value);
    }
  }
  for (; answered < told.outcomes.size(); ++answered) {
    encoder.Value(told.outcomes[answered].sequence, 0, told.outcomes[answered].value);
  }
  encoder.Settle();
  Listener listener;
  ring.Decode(listener);
  EXPECT_FALSE(listener.early);
  ASSERT_EQ(listener.told.tasks.size(), 20'000U);
  ASSERT_EQ(listener.told.outcomes.size(), told.outcomes.size());
  for (std::size_t i = 0; i < told.outcomes.size(); ++i) {
    ASSERT_EQ(listener.told.outcomes[i].sequence, told.outcomes[i].sequence) << i;
    ASSERT_EQ(listener.told.outcomes[i].value, told.outcomes[i].value) << i;
    ASSERT_EQ(listener.told.tasks[told.outcomes[i].sequence - 1].arguments, told.tasks[i].arguments) << i;
  }
}

TEST(LineageRecord, ManyChaptersAndAFullRingLoseNothing) {
  TestRing ring;
  Encoder encoder(ring.memory());
  Listener listener;
  std::mt19937_64 random(2);
  std::vector<std::vector<std::byte>> arguments;
  for (std::uint64_t i = 0; i < 40'000; ++i) {
    arguments.push_back(RandomBytes(random, 600));
    encoder.Task({kJob, 0, i}, HeaderOf(0), "", {}, arguments.back());
    if (i == 30'000) {
      EXPECT_TRUE(encoder.waiting());  // 18 MB, and the ring has 8
    }
    if (i > 30'000 && i % 100 == 0) {
      ring.Decode(listener);
      encoder.Flush();
    }
  }
  do {
    ring.Decode(listener);
  } while (!encoder.Flush());
  ring.Decode(listener);
  ASSERT_EQ(listener.told.tasks.size(), arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    ASSERT_EQ(listener.told.tasks[i].arguments, arguments[i]);
    ASSERT_EQ(listener.told.tasks[i].id, DeriveId(kJob, 0, i));
  }
}

TEST(LineageRecord, ArgumentsBeyondReasonAreLeftOutAndThatIsSaid) {
  TestRing ring;
  Encoder encoder(ring.memory());
  encoder.Task({kJob, 0, 0}, HeaderOf(0), "", {}, std::vector<std::byte>(3U << 20));
  encoder.Task({kJob, 0, 1}, HeaderOf(0), "", {}, {});
  encoder.Settle();
  Listener listener;
  ring.Decode(listener);
  ASSERT_EQ(listener.told.tasks.size(), 2U);
  EXPECT_FALSE(listener.told.tasks[0].whole);
  EXPECT_TRUE(listener.told.tasks[1].whole);
}

TEST(LineageRecord, BytesThatMakeNoSenseAreRefusedAndNeverRead) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = RandomBytes(random, random() % 200);
    if (!bytes.empty()) bytes[0] = std::byte{1};  // a chapter
    if (bytes.size() > 2) bytes[1] = std::byte{1};
    Decoder decoder;
    Listener listener;
    static_cast<void>(decoder.Read(bytes, true, listener));
  }
}

TEST(LineageRecord, ARunBeyondReasonIsRefused) {
  TestRing ring;
  Encoder encoder(ring.memory());
  encoder.Task({kJob, 0, 0}, HeaderOf(0), "", {}, {});
  const std::uint64_t size = ring.memory()->tail.load();
  std::vector<std::byte> bytes(ring.memory()->ring, ring.memory()->ring + size);
  bytes.push_back(std::byte{6 | 3 << 3});                       // a run of calls, so many:
  for (int i = 0; i < 8; ++i) bytes.push_back(std::byte{255});  // some 10^17
  bytes.push_back(std::byte{1});
  Decoder decoder;
  Listener listener;
  EXPECT_EQ(decoder.Read(bytes, true, listener).code(), Code::kCorrupt);
  EXPECT_EQ(listener.told.tasks.size(), 1U);
}

// ---- files ----

class LineageFile : public ::testing::Test {
 protected:
  // A file of `count` calls by one owner, in blocks of 100.
  std::string Write(std::uint64_t count) {
    TestRing ring;
    Encoder encoder(ring.memory());
    Result<FileWriter> file = FileWriter::Create(path(), kJob, 1);
    EXPECT_TRUE(file.ok()) << file.status().message();
    std::mt19937_64 random(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t sequence = encoder.Task({kJob, 0, i}, HeaderOf(0), "", {}, RandomBytes(random, 496));
      encoder.Value(sequence, 0, std::as_bytes(std::span(&i, 1)));
      if (i % 100 == 99) {
        encoder.Settle();
        EXPECT_TRUE(ring.WriteTo(*file, 5));
      }
    }
    encoder.Settle();
    EXPECT_TRUE(ring.WriteTo(*file, 5));
    return path();
  }
  [[nodiscard]] std::string path() const { return folder_.path() + "/lineage-0-1.log"; }
  TestFolder folder_;
};

TEST_F(LineageFile, ATornEndIsToleratedWhereverItIs) {
  Write(1000);
  Listener whole;
  const Result<FileSummary> all = ReadFile(path(), whole);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all.value().job, kJob);
  EXPECT_EQ(whole.told.tasks.size(), 1000U);
  EXPECT_EQ(all.value().torn, 0U);
  std::size_t last = 1000;
  for (std::uint64_t size = all.value().bytes; size > 40; size = size > 7919 ? size - 7919 : 40) {
    ASSERT_EQ(truncate(path().c_str(), static_cast<off_t>(size)), 0);
    Listener listener;
    const Result<FileSummary> read = ReadFile(path(), listener);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(read.value().damages.empty());
    EXPECT_EQ(listener.told.tasks.size() % 100, 0U);
    EXPECT_LE(listener.told.tasks.size(), last);
    last = listener.told.tasks.size();
    for (std::size_t i = 0; i < last; ++i) ASSERT_EQ(listener.told.tasks[i].id, DeriveId(kJob, 0, i));
  }
}

TEST_F(LineageFile, DamageInTheMiddleIsToldWithItsPlaceAndTheNextChapterIsRead) {
  Write(10'000);  // some 5 MB: five chapters
  Listener whole;
  const Result<FileSummary> all = ReadFile(path(), whole);
  ASSERT_TRUE(all.ok());
  const std::uint64_t at = all.value().bytes / 2;
  const base::Fd file(open(path().c_str(), O_RDWR | O_CLOEXEC));
  std::uint64_t word = 0;
  ASSERT_EQ(pread(file.get(), &word, 8, static_cast<off_t>(at)), 8);
  word = ~word;
  ASSERT_EQ(pwrite(file.get(), &word, 8, static_cast<off_t>(at)), 8);
  Listener listener;
  const Result<FileSummary> read = ReadFile(path(), listener);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read.value().damages.size(), 1U);
  EXPECT_LE(read.value().damages[0].offset, at + 8);  // what was hit may be the filling before it
  EXPECT_GT(read.value().damages[0].offset + read.value().damages[0].bytes, at);
  EXPECT_GT(read.value().lost_pieces, 0U);
  EXPECT_GT(listener.told.tasks.size(), 7000U);
  EXPECT_LT(listener.told.tasks.size(), 10'000U);
  EXPECT_EQ(listener.told.tasks.back().id, DeriveId(kJob, 0, 9999));
}

TEST_F(LineageFile, SomethingElseIsNoFileOfLineage) {
  const base::Fd file(open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(write(file.get(), std::string(100, 'x').data(), 100), 100);
  Listener listener;
  EXPECT_EQ(ReadFile(path(), listener).status().code(), Code::kCorrupt);
}

TEST_F(LineageFile, AScanCountsAndFindsCallsWithTheirOutcomes) {
  Write(1000);
  const Id wanted = DeriveId(kJob, 0, 123);
  const Result<Scan> scan = ScanFolder(folder_.path(), [&](const TaskRecord& task) { return task.id == wanted; });
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan.value().totals.calls, 1000U);
  EXPECT_EQ(scan.value().totals.finished, 1000U);
  EXPECT_EQ(scan.value().totals.failed, 0U);
  EXPECT_EQ(scan.value().totals.streams, 1U);
  ASSERT_EQ(scan.value().found.size(), 1U);
  const Found::Outcome* outcome = scan.value().found[0].OutcomeOf(0);
  ASSERT_NE(outcome, nullptr);
  std::uint64_t value = 0;
  ASSERT_EQ(outcome->value.size(), 8U);
  std::memcpy(&value, outcome->value.data(), 8);
  EXPECT_EQ(value, 123U);
}

// ---- folders ----

TEST(JobFolder, AJobThatGoesOnKeepsItsIdAndOneThatBeginsAnewReplacesIt) {
  const TestFolder state;
  JobNote note;
  note.job = Id{1, 1};
  bool resumed = true;
  {
    const Result<JobFolder> first = JobFolder::Open(state.path(), "a.job", false, &note, &resumed);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_FALSE(resumed);
    ASSERT_TRUE(FileWriter::Create(first.value().NewFile(0), note.job, 1).ok());
    JobNote other;
    EXPECT_EQ(JobFolder::Open(state.path(), "a.job", true, &other, &resumed).status().code(), Code::kUnavailable);
  }
  {
    JobNote later;
    later.job = Id{2, 2};
    const Result<JobFolder> second = JobFolder::Open(state.path(), "a.job", true, &later, &resumed);
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(resumed);
    EXPECT_EQ(later.job, (Id{1, 1}));
    EXPECT_EQ(second.value().NewFile(0), FolderOf(state.path(), "a.job") + "/lineage-0-2.log");
  }
  JobNote fresh;
  fresh.job = Id{3, 3};
  Result<JobFolder> third = JobFolder::Open(state.path(), "a.job", false, &fresh, &resumed);
  ASSERT_TRUE(third.ok());
  EXPECT_FALSE(resumed);
  EXPECT_TRUE(LineageFiles(third->path()).empty());
  EXPECT_EQ(JobsIn(state.path()), std::vector<std::string>{"a.job"});
  third->Remove();
  EXPECT_TRUE(JobsIn(state.path()).empty());
}

TEST(JobFolder, NamesThatAreNoFoldersAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "../x", ".hidden", "with space"}) {
    EXPECT_EQ(CheckJobName(name).code(), Code::kInvalid) << name;
  }
  EXPECT_EQ(CheckJobName(std::string(101, 'a')).code(), Code::kInvalid);
  EXPECT_TRUE(CheckJobName("train_2026-11.v1").ok());
}

}  // namespace
}  // namespace manta::lineage
