#include "control/tables.h"

#include <gtest/gtest.h>

#include "control/embedded_storage.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

class TablesTest : public testing::Test {
 protected:
  void SetUp() override { Open(3); }
  Status TryOpen(std::size_t count) {
    tables_.reset();
    std::vector<std::unique_ptr<Storage>> shards;
    for (std::size_t i = 0; i < count; ++i) {
      EmbeddedOptions options;
      options.folder = Cat(folder_.path(), "/", i);
      Result<std::unique_ptr<EmbeddedStorage>> shard = EmbeddedStorage::Open(*loop_, options);
      if (!shard.ok()) return shard.status();
      shards.push_back(std::move(*shard));
    }
    tables_ = std::make_unique<Tables>(*loop_, std::move(shards));
    std::optional<Status> opened;
    tables_->Open([&](const Status& status) { opened = status; });
    RunUntil(*loop_, [&] { return opened.has_value(); });
    return *opened;
  }
  void Open(std::size_t count) {
    const Status status = TryOpen(count);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ControlWrite WriteOf(const std::string& key, std::optional<std::string> value) {
    ControlWrite write;
    write.client = client_;
    write.sequence = ++sequence_;
    write.key = key;
    write.value = std::move(value);
    return write;
  }
  ControlWritten Now(ControlWrite write) {
    std::optional<Result<ControlWritten>> answer;
    tables_->Write(std::move(write), [&](Result<ControlWritten> result) { answer = std::move(result); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    EXPECT_TRUE(answer->ok()) << answer->status().message();
    return answer->ok() ? answer->value() : ControlWritten{};
  }
  ControlWritten Put(const std::string& key, std::optional<std::string> value) { return Now(WriteOf(key, value)); }
  ControlValue Get(const std::string& key) {
    std::optional<Result<ControlValue>> answer;
    tables_->Get(Table::kKeyValue, key, [&](Result<ControlValue> result) { answer = std::move(result); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    return answer->value();
  }
  std::string Scan(const std::string& prefix, std::size_t limit) {
    std::string text;
    std::string after;
    for (int pages = 0; pages < 1000; ++pages) {
      std::optional<Result<Page>> answer;
      tables_->Scan(Table::kKeyValue, prefix, after, limit, [&](Result<Page> page) { answer = std::move(page); });
      EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
      EXPECT_LE((*answer)->entries.size(), limit);
      for (const Entry& entry : (*answer)->entries) {
        text += entry.key + " ";
        after = entry.key;
      }
      if (!(*answer)->more) return text;
    }
    return "no end";
  }
  // Appends "key=value " and, at the end of the first part, "| " to the text.
  Subscriber Into(std::string* text) {
    return {[text](const std::vector<ControlChange>& changes, bool complete) {
              for (const ControlChange& change : changes) *text += change.key + "=" + change.value.value_or("-") + " ";
              if (complete) *text += "| ";
            },
            [text](const Status& why) { *text += "end: " + why.message(); },
            {}};
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::unique_ptr<Tables> tables_;
  Id client_{5, 6};
  std::uint64_t sequence_ = 0;
};

TEST_F(TablesTest, AValueHasAVersionThatGrows) {
  EXPECT_EQ(Get("a").version, 0U);
  const ControlWritten first = Put("a", "1");
  EXPECT_TRUE(first.applied);
  const ControlWritten second = Put("a", "2");
  EXPECT_GT(second.version, first.version);
  EXPECT_EQ(Get("a").value, "2");
  EXPECT_EQ(Get("a").version, second.version);
  EXPECT_EQ(Put("a", {}).version, 0U);
  EXPECT_EQ(Get("a").version, 0U);
  EXPECT_GT(Put("a", "3").version, second.version);
}

TEST_F(TablesTest, PutIfAbsentAndCompareAndSetLetOneWin) {
  ControlWrite absent = WriteOf("lock", "mine");
  absent.expect = 0;
  ControlWrite rival = WriteOf("lock", "yours");
  rival.expect = 0;
  std::vector<ControlWritten> answers;
  for (ControlWrite* write : {&absent, &rival}) {
    tables_->Write(*write, [&](Result<ControlWritten> result) { answers.push_back(*result); });
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return answers.size() == 2; }));
  EXPECT_TRUE(answers[0].applied);
  EXPECT_FALSE(answers[1].applied);
  EXPECT_EQ(answers[1].version, answers[0].version);
  ControlWrite stale = WriteOf("lock", "late");
  stale.expect = answers[0].version + 1000;
  EXPECT_FALSE(Now(stale).applied);
  ControlWrite right = WriteOf("lock", {});
  right.expect = answers[0].version;
  EXPECT_TRUE(Now(right).applied);
  EXPECT_EQ(Get("lock").version, 0U);
}

TEST_F(TablesTest, AWriteSentAgainIsAppliedOnceAlsoAcrossARestart) {
  const ControlWrite first = WriteOf("a", "1");
  const ControlWritten before = Now(first);
  Put("a", "2");
  EXPECT_EQ(Now(first).version, before.version);
  EXPECT_EQ(Get("a").value, "2");
  ControlWrite taken = WriteOf("b", "b");
  taken.expect = 0;
  EXPECT_TRUE(Now(taken).applied);
  Open(3);
  EXPECT_EQ(Now(first).version, before.version);
  EXPECT_EQ(Get("a").value, "2");
  EXPECT_TRUE(Now(taken).applied);
}

TEST_F(TablesTest, AWriteSentAgainWhileTheFirstIsOnItsWayIsAppliedOnce) {
  std::vector<std::uint64_t> versions;
  const ControlWrite write = WriteOf("a", "1");
  for (int i = 0; i < 3; ++i) {
    tables_->Write(write, [&](Result<ControlWritten> result) { versions.push_back(result->version); });
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return versions.size() == 3; }));
  EXPECT_EQ(versions[0], versions[1]);
  EXPECT_EQ(versions[0], versions[2]);
}

TEST_F(TablesTest, AReadWaitsForTheWritesBeforeIt) {
  tables_->Write(WriteOf("a", "new"), [](const Result<ControlWritten>&) {});
  EXPECT_EQ(Get("a").value, "new");
}

TEST_F(TablesTest, ALongLineForOneKeyIsWorkedOffWithoutADeepStack) {
  constexpr int kLine = 100'000;
  tables_->Write(WriteOf("a", "new"), [](const Result<ControlWritten>&) {});
  int done = 0;
  for (int i = 0; i < kLine; ++i) {
    tables_->Get(Table::kKeyValue, "a", [&](Result<ControlValue> result) { done += result->value == "new" ? 1 : 0; });
  }
  EXPECT_TRUE(RunUntil(*loop_, [&] { return done == kLine; })) << done;
}

TEST_F(TablesTest, AScanOverAllShardsIsInOrderWhateverThePages) {
  std::string expected;
  for (int i = 100; i < 150; ++i) {
    Put("k" + std::to_string(i), "v");
    expected += "k" + std::to_string(i) + " ";
  }
  Put("other", "v");
  for (const std::size_t limit : {1U, 7U, 50U, 1000U}) EXPECT_EQ(Scan("k", limit), expected) << limit;
}

TEST_F(TablesTest, AWatchTellsWhatIsThereThenEveryChangeInOrder) {
  Put("n1", "a");
  Put("x", "a");
  std::string text;
  const Tables::WatchId watch = tables_->Watch(Table::kKeyValue, "n", Into(&text));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return text.ends_with("| "); }));
  EXPECT_EQ(text, "n1=a | ");
  Put("n1", "b");
  Put("x", "b");
  Put("n2", "c");
  Put("n1", {});
  EXPECT_EQ(text, "n1=a | n1=b n2=c n1=- ");
  tables_->Unwatch(watch);
  Put("n1", "d");
  EXPECT_EQ(text, "n1=a | n1=b n2=c n1=- ");
  EXPECT_EQ(tables_->watches(), 0U);
}

TEST_F(TablesTest, ChangesDuringTheFirstPartAreToldOnceAndInOrder) {
  // More than a page, written without waiting while the watch begins.
  int done = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1500; ++i) {
      ControlWrite write;  // of nobody: more than a client's window
      write.key = "k" + std::to_string(i);
      write.value = std::to_string(round);
      tables_->Write(std::move(write), [&](const Result<ControlWritten>& result) { done += result.ok() ? 1 : 0; });
    }
  }
  std::unordered_map<std::string, std::uint64_t> versions;
  std::unordered_map<std::string, std::string> values;
  std::size_t disorder = 0;
  tables_->Watch(Table::kKeyValue, "k",
                 {[&](const std::vector<ControlChange>& changes, bool) {
                    for (const ControlChange& change : changes) {
                      if (change.version <= versions[change.key]) ++disorder;
                      versions[change.key] = change.version;
                      values[change.key] = *change.value;
                    }
                  },
                  {},
                  {}});
  ASSERT_TRUE(RunUntil(*loop_, [&] { return done == 4500; })) << done;
  ASSERT_TRUE(RunUntil(*loop_, [&] { return values.size() == 1500; }));
  EXPECT_EQ(disorder, 0U);
  for (const auto& [key, value] : values) EXPECT_EQ(value, "2") << key;
}

TEST_F(TablesTest, ASlowSubscriberIsCutAndNoOtherIs) {
  std::string slow;
  std::string fast;
  std::size_t backlog = 0;
  Subscriber subscriber = Into(&slow);
  subscriber.backlog = [&] { return backlog; };
  tables_->Watch(Table::kKeyValue, "", subscriber);
  tables_->Watch(Table::kKeyValue, "", Into(&fast));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return slow == "| " && fast == "| "; }));
  Put("a", "1");
  backlog = Tables::kMaxBacklog + 1;
  Put("a", "2");
  Put("a", "3");
  EXPECT_NE(slow.find("| a=1 end: the watch of key_value/ was ended: its reader is too slow"), std::string::npos)
      << slow;
  EXPECT_EQ(fast, "| a=1 a=2 a=3 ");
  EXPECT_EQ(tables_->watches(), 1U);
}

TEST_F(TablesTest, AFirstPartWaitsForItsReaderAndWhatComesMeanwhileIsBounded) {
  Put("a", "1");
  std::string text;
  std::size_t backlog = Tables::kEnoughBacklog + 1;
  Subscriber subscriber = Into(&text);
  subscriber.backlog = [&] { return backlog; };
  tables_->Watch(Table::kKeyValue, "", subscriber);
  Put("b", "2");
  for (int i = 0; i < 20; ++i) loop_->RunOnce(1000);
  EXPECT_EQ(text, "");
  backlog = 0;
  ASSERT_TRUE(RunUntil(*loop_, [&] { return text.ends_with("| "); }));
  EXPECT_EQ(text, "a=1 b=2 | ");
  // A second one whose reader never gets on.
  std::string cut;
  subscriber = Into(&cut);
  subscriber.backlog = [] { return Tables::kMaxBacklog; };
  tables_->Watch(Table::kKeyValue, "big", subscriber);
  for (int i = 0; i < 10; ++i) Put("big", std::string(1U << 20, 'x'));
  EXPECT_NE(cut.find("before its reader had taken the first part"), std::string::npos) << cut;
}

TEST_F(TablesTest, AnotherNumberOfShardsIsRefused) {
  Put("a", "1");
  const Status status = TryOpen(2);
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("1 of 3"), std::string::npos) << status.message();
  Open(3);
  EXPECT_EQ(Get("a").value, "1");
}

TEST_F(TablesTest, WhatMakesNoSenseIsRefused) {
  std::optional<Status> status;
  const auto take = [&](const Result<ControlWritten>& result) { status = result.status(); };
  ControlWrite write = WriteOf(std::string(wire::kMaxControlKey + 1, 'k'), "v");
  tables_->Write(write, take);
  EXPECT_EQ(status->code(), Code::kInvalid);
  write = WriteOf("k", "v");
  write.table = Table::kMeta;
  tables_->Write(write, take);
  EXPECT_EQ(status->code(), Code::kInvalid);
  write.table = static_cast<Table>(200);
  tables_->Write(write, take);
  EXPECT_EQ(status->code(), Code::kInvalid);
  std::string text;
  tables_->Watch(static_cast<Table>(200), "", Into(&text));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return text.starts_with("end: "); }));
}

}  // namespace
}  // namespace manta::control
