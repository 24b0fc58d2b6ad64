// For tests: several daemons, linked over loopback TCP, and processes with a store client; all loops in one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "node/linked_nodes.h"
#include "node/test_node.h"
#include "store/client.h"
#include "store/store_test_util.h"
#include "wire/listener.h"
#include "wire/scratch_folder.h"

namespace manta::node {

struct TestFarNode {
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<NodeLinks> links;
  std::unique_ptr<LinkedNodes> nodes;
  std::unique_ptr<wire::Listener> listener;

  ~TestFarNode() {
    listener.reset();
    if (daemon) daemon->StopSharing();
    links.reset();  // its loop is the daemon's
  }
};

// A driver that stores and reads values.
class StoreDriver final : public store::KeeperLink {
 public:
  explicit StoreDriver(std::unique_ptr<TestClient> client) : client_(std::move(client)) {
    store_.emplace(*this, self(), client_->arena().at(shm::kPinBoardOffset));
  }
  [[nodiscard]] ProcessId self() const { return client_->welcome.process; }
  [[nodiscard]] TestClient& client() { return *client_; }
  [[nodiscard]] store::StoreClient& store() { return *store_; }

  Result<Place> Put(std::uint64_t n, std::uint64_t size) {
    Result<store::Allocation> room = store_->Allocate(store::TestId(n), self(), size);
    if (!room.ok()) return room.status();
    store::Fill(room->data, size, n);
    return store_->Seal(*room);
  }
  Status Check(std::uint64_t n, const Place& place, ProcessId owner) {
    Result<store::View> view = store_->Open(store::TestId(n), place, nullptr, owner);
    if (!view.ok()) return view.status();
    const bool same = view->size == place.size && store::Holds(view->data, view->size, n);
    store_->Close(*view);
    return same ? Status() : Status(Code::kCorrupt, Cat("object ", n, " has other bytes"));
  }

  template <typename Answer, typename M>
  Result<Answer> Call(const M& message, std::vector<base::Fd>* fds = nullptr) {
    const std::uint64_t call = ++calls_;
    client_->Send(message, call);
    std::optional<wire::Frame> frame = client_->AwaitAnswer(call);
    if (!frame.has_value()) return Status(Code::kUnavailable, "no answer");
    if (frame->kind == wire::Kind::kFailed) {
      const Failure failure = frame->As<wire::Failed>().value().failure;
      return Status(failure.code, failure.message);
    }
    if (fds != nullptr) *fds = std::move(frame->fds);
    return frame->As<Answer>();
  }

  // KeeperLink
  Result<store::LentSegment> Request(std::uint64_t bytes) override {
    std::vector<base::Fd> fds;
    Result<wire::SegmentLent> lent = Call<wire::SegmentLent>(wire::SegmentRequest{bytes}, &fds);
    if (!lent.ok()) return lent.status();
    return store::LentSegment{lent->segment, lent->bytes, lent->whole, std::move(fds.at(0))};
  }
  Result<store::OpenedSegment> Open(std::uint32_t segment) override {
    std::vector<base::Fd> fds;
    Result<wire::SegmentOpened> opened = Call<wire::SegmentOpened>(wire::OpenSegment{segment}, &fds);
    if (!opened.ok()) return opened.status();
    return store::OpenedSegment{opened->segment, opened->bytes, opened->offset, std::move(fds.at(0))};
  }
  Result<Place> Restore(const Id& object) override {
    Result<wire::Restored> restored = Call<wire::Restored>(wire::Restore{object});
    if (!restored.ok()) return restored.status();
    return restored->place;
  }
  Result<Place> Fetch(const Id& object, const Place& place, ProcessId owner) override {
    Result<wire::Fetched> fetched = Call<wire::Fetched>(wire::Fetch{object, place, owner});
    if (!fetched.ok()) return fetched.status();
    return fetched->place;
  }
  void Free(std::vector<Id> objects, std::vector<Place> places) override {
    client_->Send(wire::FreeObjects{std::move(objects), std::move(places)});
  }
  void Return(std::uint32_t segment) override { client_->Send(wire::SegmentReturn{segment}); }

 private:
  std::unique_ptr<TestClient> client_;
  std::optional<store::StoreClient> store_;
  std::uint64_t calls_ = 100;
};

class LinkedNodesTest : public testing::Test {
 protected:
  ~LinkedNodesTest() override {
    // Connections to those that go first are closed by the others' loops, which still run here.
    for (auto& node : nodes_) node.reset();
  }

  // Nodes 1 to `count`.
  void Start(std::size_t count, std::uint64_t store_bytes = 64ULL << 20,
             const std::function<void(TransferOptions&)>& change = {}, bool tls = false) {
    static std::atomic<int> serial{0};
    Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::OpenOrCreate(scratch_ / "secrets");
    ASSERT_TRUE(secrets.ok()) << secrets.status().message();
    for (std::size_t i = 1; i <= count; ++i) {
      const auto number = static_cast<NodeNumber>(i);
      auto node = std::make_unique<TestFarNode>();
      Config config;
      config.node = Cat("n", i);
      config.address = Cat("@manta-cluster-test-", getpid(), "-", ++serial);
      config.total.Set("CPU", kUnit);
      config.store_bytes = other_stores_.contains(number) ? other_stores_[number] : store_bytes;
      Result<std::unique_ptr<Daemon>> made = Daemon::Create(std::move(config));
      ASSERT_TRUE(made.ok()) << made.status().message();
      node->daemon = std::move(*made);
      node->links = std::make_unique<NodeLinks>(node->daemon->loop(), *secrets);
      node->links->SetSelf(number, 1);
      node->nodes = std::make_unique<LinkedNodes>(*node->links);
      TransferOptions options;
      options.secrets = *secrets;
      options.always_tls = tls;
      if (change) change(options);
      const Status shared = node->daemon->ShareObjects(*node->nodes, std::move(options));
      ASSERT_TRUE(shared.ok()) << shared.message();
      ConnectObjects(*node->links, *node->daemon);
      wire::ListenOptions listen;
      listen.secrets = *secrets;
      listen.tls = tls;
      Result<std::unique_ptr<wire::Listener>> listener =
          wire::Listener::Create(node->daemon->loop(), listen, [raw = node.get()](wire::Link link) {
            if (link.role == wire::LinkRole::kTransfer) {
              raw->daemon->transfers()->Accepted(std::move(link));
            } else {
              raw->links->Accepted(std::move(link));
            }
          });
      ASSERT_TRUE(listener.ok()) << listener.status().message();
      node->listener = std::move(*listener);
      nodes_.push_back(std::move(node));
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (std::size_t j = 0; j < nodes_.size(); ++j) {
        if (i != j) nodes_[i]->links->NodeUp(static_cast<NodeNumber>(j + 1), nodes_[j]->listener->address());
      }
    }
  }

  TestFarNode& node(NodeNumber number) { return *nodes_[number - 1]; }
  Transfers& transfers(NodeNumber number) { return *node(number).daemon->transfers(); }

  // It is gone at once, as if killed; the others are told by its connections, and by the cluster.
  void Kill(NodeNumber number) {
    nodes_[number - 1].reset();
    for (auto& other : nodes_) {
      if (other) other->links->NodeDead(number, Status(Code::kUnavailable, "it was killed"));
    }
  }

  void Pump() {
    bool any = false;
    for (auto& each : nodes_) {
      if (!each) continue;
      each->daemon->loop().RunOnce(any ? 0 : 500);  // one of them may sleep a little
      any = true;
    }
  }
  bool PumpUntil(const std::function<bool()>& done) {
    const std::int64_t deadline = base::NowMicros() + kPatienceUs;
    while (!done()) {
      if (base::NowMicros() > deadline) return false;
      Pump();
    }
    return true;
  }
  void Settle() {
    for (int i = 0; i < 30; ++i) Pump();
  }

  std::unique_ptr<StoreDriver> Driver(NodeNumber number) {
    std::unique_ptr<TestClient> client = TestClient::Connect(*node(number).daemon);
    client->pump = [this] { Pump(); };
    client->SayHello(Id{++jobs_, 1});
    return std::make_unique<StoreDriver>(std::move(client));
  }
  wire::StatusReply StatusOf(NodeNumber number) {
    std::unique_ptr<TestClient> client = TestClient::Connect(*node(number).daemon);
    client->pump = [this] { Pump(); };
    wire::Hello hello;
    hello.role = wire::Role::kTool;
    client->Send(hello, 1);
    client->Send(wire::StatusRequest{}, 2);
    const std::optional<wire::StatusReply> status = client->Await<wire::StatusReply>();
    return status.value_or(wire::StatusReply{});
  }

  std::map<NodeNumber, std::uint64_t> other_stores_;  // of nodes whose size differs; before Start
  wire::ScratchFolder scratch_;
  std::vector<std::unique_ptr<TestFarNode>> nodes_;
  std::uint64_t jobs_ = 0;
};

}  // namespace manta::node
