#include "control/actor_names.h"

#include <gtest/gtest.h>

#include "control/embedded_storage.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

class ActorNameTableTest : public testing::Test {
 protected:
  void SetUp() override {
    Open([](NodeNumber) { return true; });
  }

  // As a control process that starts again.
  void Open(const std::function<bool(NodeNumber)>& lives_there) {
    const auto lives = [lives_there](const wire::NamedActor& named) { return lives_there(named.home); };
    names_.reset();
    tables_.reset();
    EmbeddedOptions options;
    options.folder = folder_.path() + "/shard";
    Result<std::unique_ptr<EmbeddedStorage>> shard = EmbeddedStorage::Open(*loop_, options);
    ASSERT_TRUE(shard.ok()) << shard.status().message();
    std::vector<std::unique_ptr<Storage>> shards;
    shards.push_back(std::move(*shard));
    tables_ = std::make_unique<Tables>(*loop_, std::move(shards));
    names_ = std::make_unique<ActorNameTable>(*tables_);
    std::optional<Status> opened;
    tables_->Open([&](const Status& status) {
      ASSERT_TRUE(status.ok());
      names_->Open(lives, [&](const Status& done) { opened = done; });
    });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return opened.has_value(); }));
    ASSERT_TRUE(opened->ok()) << opened->message();
  }
  template <typename M>
  wire::Frame Ask(NodeNumber from, const M& message) {
    wire::FrameReader reader;
    bool there = false;
    wire::FrameReader request;
    const std::string bytes = wire::EncodeFrame(message, 5);
    request.Add(std::as_bytes(std::span(bytes)), {});
    wire::Frame frame;
    EXPECT_TRUE(*request.Next(&frame));
    EXPECT_TRUE(names_->OnFrame(from, frame, [&](const std::string& answer) {
      reader.Add(std::as_bytes(std::span(answer)), {});
      there = true;
    }));
    if constexpr (std::is_same_v<M, wire::ReleaseName>) return {};
    EXPECT_TRUE(RunUntil(*loop_, [&] { return there; }));
    wire::Frame reply;
    EXPECT_TRUE(*reader.Next(&reply));
    EXPECT_EQ(reply.call, 5U);
    return reply;
  }
  Id Claim(NodeNumber from, const std::string& name, std::uint64_t actor) {
    return Ask(from, wire::ClaimName{"default", name, Id{actor, 1}, "C"}).As<wire::NamedActor>().value().actor;
  }
  bool Known(const std::string& name) { return Ask(9, wire::FindName{"default", name}).As<wire::NamedActor>().ok(); }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<ActorNameTable> names_;
};

TEST_F(ActorNameTableTest, AllNamesOfANamespaceAreListed) {
  static_cast<void>(Claim(1, "b", 7));
  static_cast<void>(Claim(2, "a", 8));
  static_cast<void>(Ask(1, wire::ClaimName{"other", "c", Id{9, 1}, "C"}));
  const auto list = [&](const std::string& space) {
    std::string text;
    const Result<wire::NameList> list = Ask(1, wire::ListNames{space}).As<wire::NameList>();
    for (const auto& entry : list.value().names) text += entry.space + "/" + entry.name + " ";
    return text;
  };
  EXPECT_EQ(list("default"), "default/a default/b ");
  EXPECT_EQ(list(""), "default/a default/b other/c ");
  Ask(1, wire::ReleaseName{"default", "b", Id{7, 1}});
  EXPECT_EQ(list("default"), "default/a ");
}

TEST_F(ActorNameTableTest, ANameIsGivenOnceAndAgainWhenItsActorIsDead) {
  EXPECT_EQ(Claim(1, "bank", 1), (Id{1, 1}));
  EXPECT_EQ(Claim(2, "bank", 2), (Id{1, 1}));
  Ask(1, wire::ReleaseName{"default", "bank", Id{1, 1}});
  EXPECT_FALSE(Known("bank"));
  EXPECT_EQ(Claim(2, "bank", 2), (Id{2, 1}));
}

TEST_F(ActorNameTableTest, NamesSurviveARestartUnlessTheirNodeDoesNot) {
  Claim(1, "bank", 1);
  Claim(2, "a/b \"odd\"", 2);
  Claim(2, "gone", 3);
  Ask(2, wire::ReleaseName{"default", "gone", Id{3, 1}});
  Open([](NodeNumber) { return true; });
  EXPECT_TRUE(Known("bank"));
  EXPECT_TRUE(Known("a/b \"odd\""));
  EXPECT_FALSE(Known("gone"));
  Open([](NodeNumber node) { return node == 1; });
  EXPECT_TRUE(Known("bank"));
  EXPECT_FALSE(Known("a/b \"odd\""));
  names_->NodeGone(1, [](const Id&) { return false; });
  EXPECT_FALSE(Known("bank"));
}

TEST_F(ActorNameTableTest, ANameThatIsTooLongIsRefused) {
  const wire::Frame frame = Ask(1, wire::ClaimName{"default", std::string(2000, 'x'), Id{1, 1}, "C"});
  EXPECT_EQ(frame.As<wire::Failed>().value().failure.code, Code::kInvalid);
}

}  // namespace
}  // namespace manta::control
