#include <gtest/gtest.h>

#include <map>

#include "control/embedded_storage.h"
#include "control/kept_actors.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

const Id kActor{7, 9};

// The head's tables, with what a test writes there. Node 1 is a home, node 2 can become one.
class DamagedActorsTest : public testing::Test {
 protected:
  void SetUp() override {
    EmbeddedOptions options;
    options.folder = folder_.path();
    Result<std::unique_ptr<EmbeddedStorage>> shard = EmbeddedStorage::Open(*loop_, options);
    ASSERT_TRUE(shard.ok()) << shard.status().message();
    std::vector<std::unique_ptr<Storage>> shards;
    shards.push_back(std::move(*shard));
    tables_ = std::make_unique<Tables>(*loop_, std::move(shards));
    std::optional<Status> opened;
    tables_->Open([&](const Status& status) { opened = status; });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return opened.has_value(); }));
    ASSERT_TRUE(opened->ok()) << opened->message();
    OpenKept();
  }
  void OpenKept() {
    kept_ = std::make_unique<KeptActors>(
        *tables_, KeptActors::Ways{[this](NodeNumber node, const std::string&) { ++sent_[node]; },
                                   [] { return std::vector<NodeNumber>{2}; }, [](const Id&, NodeNumber) {}});
    std::optional<Status> opened;
    kept_->Open([](NodeNumber) { return true; }, [&](const Status& status) { opened = status; });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return opened.has_value(); }));
    ASSERT_TRUE(opened->ok()) << opened->message();
  }
  void Put(const std::string& key, const std::string& value) {
    wire::ControlWrite write;
    write.table = Table::kActors;
    write.key = key;
    write.value = value;
    std::optional<Status> written;
    tables_->Write(std::move(write), [&](const Result<ControlWritten>& result) { written = result.status(); });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return written.has_value(); }));
    ASSERT_TRUE(written->ok()) << written->message();
  }
  // An actor at home on node 1.
  void Keep() {
    wire::KeepActor message;
    message.made.order.actor = kActor;
    Say(1, wire::EncodeFrame(message, 1));
    Say(1, wire::EncodeFrame(wire::KeepJournal{kActor, 1, 1, 0, {{0, "done"}}}, 2));
  }
  // From a node; waits for the answer.
  void Say(NodeNumber from, const std::string& bytes) {
    wire::FrameReader reader;
    reader.Add(std::as_bytes(std::span(bytes)), {});
    wire::Frame frame;
    ASSERT_TRUE(*reader.Next(&frame));
    bool answered = false;
    ASSERT_TRUE(kept_->OnFrame(from, frame, [&](const std::string&) { answered = true; }));
    ASSERT_TRUE(RunUntil(*loop_, [&] { return answered; }));
  }
  Result<NodeNumber> Home() {
    std::optional<Result<NodeNumber>> home;
    kept_->WhenHome(kActor, [&](const Result<NodeNumber>& answer) { home = answer; });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return home.has_value(); }));
    return home.has_value() ? *home : Result<NodeNumber>(Status(Code::kTimedOut, "nobody answered"));
  }
  // The home is lost, and the next cannot be told.
  void ExpectDamage(const std::string& key, const std::string& why) {
    testing::internal::CaptureStderr();
    kept_->NodeGone(1, "it was killed");
    const Result<NodeNumber> home = Home();
    const std::string said = testing::internal::GetCapturedStderr();
    ASSERT_FALSE(home.ok());
    EXPECT_EQ(home.status().code(), Code::kCorrupt);
    for (const std::string& text : {said, home.status().message()}) {
      EXPECT_NE(text.find(Cat("'", key, "'")), std::string::npos) << text;
      EXPECT_NE(text.find(why), std::string::npos) << text;
    }
    kept_->NodeUp(2);
    EXPECT_FALSE(Home().ok()) << "nor later";
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<KeptActors> kept_;
  std::map<NodeNumber, int> sent_;
};

TEST_F(DamagedActorsTest, AnActorIsHandedToTheNextNodeWithItsJournal) {
  Keep();
  EXPECT_EQ(Home().value(), 1U);
  kept_->NodeGone(1, "it was killed");
  // A part of the journal, and the order; that it is adopted would be said by the node.
  EXPECT_TRUE(RunUntil(*loop_, [&] { return sent_[2] == 2; })) << sent_[2];
}

TEST_F(DamagedActorsTest, AHomeThatDoesNotDecodeIsSkippedAndSaid) {
  Keep();
  Put(Cat("home/", ToHex(Id{1, 1})), "x");
  Put("home/nobody", "");
  testing::internal::CaptureStderr();
  OpenKept();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(Cat("'home/", ToHex(Id{1, 1}), "' (1 bytes)")), std::string::npos) << said;
  EXPECT_NE(said.find("it does not decode: "), std::string::npos) << said;
  EXPECT_NE(said.find("'home/nobody'"), std::string::npos) << said;
  EXPECT_TRUE(kept_->Has(kActor)) << "others are there";
  EXPECT_FALSE(kept_->Has(Id{1, 1}));
}

TEST_F(DamagedActorsTest, AnActorOfWhoseJournalAPartDoesNotDecodeDoesNotComeBackWrong) {
  Keep();
  const std::string key = Cat("journal/", ToHex(kActor), "/0000000000000001");
  Put(key, "x");
  ExpectDamage(key, "it does not decode: ");
}

TEST_F(DamagedActorsTest, AnActorWhoseOrderDoesNotDecodeIsAnErrorForItsCallers) {
  Keep();
  const std::string key = Cat("kept/", ToHex(kActor));
  Put(key, "x");
  ExpectDamage(key, "it does not decode: ");
}

}  // namespace
}  // namespace manta::control
