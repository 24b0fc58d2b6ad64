#include "control/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "control/embedded_storage.h"
#include "control/test_util.h"
#include "wire/control_client.h"

namespace manta::control {
namespace {

using wire::ControlClient;

class ServerTest : public testing::Test {
 protected:
  void SetUp() override { Start(); }
  void TearDown() override {
    client_.reset();
    Stop();
  }
  void Start() {
    EmbeddedOptions options;
    options.folder = folder_.path() + "/store";
    std::vector<std::unique_ptr<Storage>> shards;
    shards.push_back(std::move(*EmbeddedStorage::Open(*loop_, options)));
    tables_ = std::make_unique<Tables>(*loop_, std::move(shards));
    std::optional<Status> opened;
    tables_->Open([&](const Status& status) { opened = status; });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return opened.has_value(); }));
    ASSERT_TRUE(opened->ok()) << opened->message();
    server_ = std::make_unique<Server>(*loop_, *tables_);
  }
  void Stop() {
    server_.reset();
    tables_.reset();
  }
  // One end for the server; the other is given back.
  Result<base::Fd> Dial() {
    if (server_ == nullptr) return Status(Code::kUnavailable, "nobody listens");
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return Status(Code::kIo, "pair");
    base::Fd ours(pair[1]);
    if (Status status = server_->Add(base::Fd(pair[0])); !status.ok()) return status;
    last_socket_ = ours.get();
    return ours;
  }
  void MakeClient(wire::ControlClientOptions options = {}) {
    client_ = std::make_unique<ControlClient>(
        *loop_, [this](const ControlClient::Connected& done) { done(Dial()); }, options);
  }
  // As the network does it: both ends see the connection end.
  void CutConnection() const { shutdown(last_socket_, SHUT_RDWR); }
  std::string Put(const std::string& key, const std::string& value) {
    std::optional<Result<ControlWritten>> answer;
    client_->Put(Table::kNodes, key, value, [&](Result<ControlWritten> result) { answer = std::move(result); });
    if (!RunUntil(*loop_, [&] { return answer.has_value(); })) return "no answer";
    return answer->ok() ? "ok" : answer->status().message();
  }
  std::string Get(const std::string& key) {
    std::optional<Result<ControlValue>> answer;
    client_->Get(Table::kNodes, key, [&](Result<ControlValue> result) { answer = std::move(result); });
    if (!RunUntil(*loop_, [&] { return answer.has_value(); })) return "no answer";
    if (!answer->ok()) return answer->status().message();
    return (*answer)->version == 0 ? "-" : (*answer)->value;
  }
  ControlClient::Watcher Into(std::string* text) {
    return {[text](std::vector<ControlChange>& changes, bool complete) {
              for (const ControlChange& change : changes) *text += change.key + "=" + change.value.value_or("-") + " ";
              if (complete) *text += "| ";
            },
            [text] { *text += "reset "; }, [text](const Status& why) { *text += "end: " + why.message(); }};
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<ControlClient> client_;
  int last_socket_ = -1;
};

TEST_F(ServerTest, EveryKindOfRequestIsAnswered) {
  MakeClient();
  EXPECT_EQ(Put("a", "1"), "ok");
  EXPECT_EQ(Get("a"), "1");
  EXPECT_EQ(Get("b"), "-");
  std::vector<ControlWritten> written;
  const auto take = [&](Result<ControlWritten> result) { written.push_back(*result); };
  client_->PutIfAbsent(Table::kNodes, "a", "2", take);
  client_->PutIfAbsent(Table::kNodes, "b", "2", take);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return written.size() == 2; }));
  // Answers about different keys come in any order: the one that needs no disk is the first.
  EXPECT_FALSE(written[0].applied);
  EXPECT_TRUE(written[1].applied);
  client_->CompareAndSet(Table::kNodes, "b", written[1].version, "3", take);
  client_->CompareAndSet(Table::kNodes, "b", written[1].version, "4", take);
  client_->Delete(Table::kNodes, "a", take);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return written.size() == 5; }));
  EXPECT_EQ(Get("b"), "3");
  EXPECT_EQ(Get("a"), "-");
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  client_->ScanAll(Table::kNodes, "",
                   [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_EQ((*all)->size(), 1U);
  EXPECT_EQ((*all)->front().value, "3");
  EXPECT_EQ(client_->epoch(), tables_->epoch());
}

TEST_F(ServerTest, AScanOfManyPagesComesWhole) {
  MakeClient();
  int done = 0;
  for (int i = 0; i < 2500; ++i) {
    client_->Put(Table::kObjects, "o" + std::to_string(i), "v",
                 [&](const Result<ControlWritten>& result) { done += result.ok() ? 1 : 0; });
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return done == 2500; })) << done;  // more than the window: held and released
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  client_->ScanAll(Table::kObjects, "o",
                   [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  EXPECT_EQ((*all)->size(), 2500U);
}

TEST_F(ServerTest, WritesCutOffBeforeTheirAnswerTakeEffectOnce) {
  MakeClient();
  ASSERT_EQ(Put("counter", "0"), "ok");
  // Each adds one by compare-and-set on what it read; the connection is cut in between, again and again.
  int applied = 0;
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    std::optional<Result<ControlValue>> before;
    client_->Get(Table::kNodes, "counter", [&](Result<ControlValue> value) { before = std::move(value); });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return before.has_value(); }));
    ASSERT_TRUE(before->ok()) << before->status().message();
    std::optional<Result<ControlWritten>> answer;
    client_->CompareAndSet(Table::kNodes, "counter", (*before)->version,
                           std::to_string(std::stoi((*before)->value) + 1),
                           [&](Result<ControlWritten> result) { answer = std::move(result); });
    for (int turn = 0; turn < i % 4; ++turn) loop_->RunOnce(0);
    CutConnection();
    ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    ASSERT_TRUE(answer->ok()) << answer->status().message();
    (*answer)->applied ? ++applied : ++refused;
  }
  EXPECT_EQ(applied, 40);
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(Get("counter"), "40");
}

TEST_F(ServerTest, AStoreThatRestartsIsFoundAgainWithAllThatWasWritten) {
  MakeClient();
  std::string text;
  client_->Watch(Table::kNodes, "", Into(&text));
  ASSERT_EQ(Put("a", "1"), "ok");
  ASSERT_TRUE(RunUntil(*loop_, [&] { return text == "| a=1 "; })) << text;
  const std::uint64_t epoch = client_->epoch();
  Stop();
  std::optional<Result<ControlWritten>> answer;
  client_->Put(Table::kNodes, "b", "2", [&](Result<ControlWritten> result) { answer = std::move(result); });
  for (int i = 0; i < 20; ++i) loop_->RunOnce(1000);
  EXPECT_FALSE(client_->connected());
  EXPECT_FALSE(answer.has_value());
  Start();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value() && text.find("b=2") != std::string::npos; }));
  EXPECT_TRUE(answer->ok());
  EXPECT_EQ(Get("a"), "1");
  EXPECT_GT(client_->epoch(), epoch);
  // The new one is in the first part or follows it.
  EXPECT_TRUE(text == "| a=1 reset a=1 b=2 | " || text == "| a=1 reset a=1 | b=2 ") << text;
}

TEST_F(ServerTest, AStoreOutOfReachIsAnErrorThatSaysWhy) {
  Stop();
  wire::ControlClientOptions options;
  options.patience_us = 50'000;
  MakeClient(options);
  const std::string message = Put("a", "1");
  EXPECT_NE(message.find("out of reach"), std::string::npos) << message;
  EXPECT_NE(message.find("nobody listens"), std::string::npos) << message;
}

TEST_F(ServerTest, AReaderThatStopsReadingIsCutFromItsWatchWithAnError) {
  MakeClient();
  // A peer of its own that says hello, watches, and does not read.
  base::Fd slow = std::move(*Dial());
  const std::string words = wire::EncodeFrame(wire::ControlHello{wire::kControlVersion, Id{9, 9}}, 1) +
                            wire::EncodeFrame(wire::ControlWatch{7, Table::kNodes, ""});
  ASSERT_TRUE(wire::SendAll(slow.get(), std::as_bytes(std::span(words)), {}).ok());
  ASSERT_TRUE(RunUntil(*loop_, [&] { return tables_->watches() == 1; }));
  for (int i = 0; i < 5; ++i) loop_->RunOnce(1000);
  int sent = 0;
  while (tables_->watches() == 1 && sent < 40) {
    ASSERT_EQ(Put("big", std::string(1U << 20, 'x')), "ok");
    ++sent;
  }
  EXPECT_LE(sent, 12);
  EXPECT_EQ(server_->peers(), 2U);
  // Now it reads: what was sent before, and then why it ended.
  wire::FrameReader reader;
  std::vector<std::byte> buffer(1U << 20);
  std::optional<wire::ControlWatchEnded> ended;
  ASSERT_TRUE(RunUntil(*loop_, [&] {
    std::size_t count = 0;
    bool would_block = false;
    std::vector<base::Fd> fds;
    if (!wire::Receive(slow.get(), buffer, &count, &fds, &would_block).ok()) return false;
    reader.Add(std::span(buffer).first(count), {});
    wire::Frame frame;
    while (*reader.Next(&frame)) {
      const Result<wire::ControlWatchEnded> message = frame.As<wire::ControlWatchEnded>();
      if (message.ok()) ended = message.value();
    }
    return ended.has_value();
  }));
  EXPECT_EQ(ended->watch, 7U);
  EXPECT_NE(ended->failure.message.find("too slow"), std::string::npos) << ended->failure.message;
}

TEST_F(ServerTest, AWrongVersionIsToldBoth) {
  base::Fd socket = std::move(*Dial());
  const std::string hello = wire::EncodeFrame(wire::ControlHello{99, Id{1, 1}}, 1);
  ASSERT_TRUE(wire::SendAll(socket.get(), std::as_bytes(std::span(hello)), {}).ok());
  ASSERT_TRUE(RunUntil(*loop_, [&] { return server_->peers() == 0; }));
  std::vector<std::byte> buffer(4096);
  std::size_t count = 0;
  bool would_block = false;
  std::vector<base::Fd> fds;
  ASSERT_TRUE(wire::Receive(socket.get(), buffer, &count, &fds, &would_block).ok());
  wire::FrameReader reader;
  reader.Add(std::span(buffer).first(count), {});
  wire::Frame frame;
  ASSERT_TRUE(*reader.Next(&frame));
  const std::string message = frame.As<wire::Failed>().value().failure.message;
  EXPECT_NE(message.find("version 99"), std::string::npos) << message;
}

TEST_F(ServerTest, NothingIsAnsweredBeforeHelloAndNonsenseEndsOnlyItsConnection) {
  MakeClient();
  ASSERT_EQ(Put("a", "1"), "ok");
  for (const std::string& words : {wire::EncodeFrame(wire::ControlGet{Table::kNodes, "a"}, 1),
                                   std::string("GET / HTTP/1.1\r\nHost: manta\r\n\r\n....."),
                                   wire::EncodeFrame(wire::ControlHello{wire::kControlVersion, Id{1, 1}}, 1) +
                                       wire::EncodeFrame(wire::Goodbye{}, 2),
                                   wire::EncodeFrame(wire::ControlHello{wire::kControlVersion, Id{1, 1}}, 1) +
                                       wire::EncodeFrame(static_cast<wire::Kind>(wire::ControlKind::kWrite), 2,
                                                         std::as_bytes(std::span("x", 1)), 0)}) {
    base::Fd socket = std::move(*Dial());
    ASSERT_TRUE(wire::SendAll(socket.get(), std::as_bytes(std::span(words)), {}).ok());
    ASSERT_TRUE(RunUntil(*loop_, [&] { return server_->peers() == 1; }));
  }
  EXPECT_EQ(Get("a"), "1");
}

}  // namespace
}  // namespace manta::control
