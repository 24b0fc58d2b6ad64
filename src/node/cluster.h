// Cluster is this node's membership: its connection to the head (registration, heartbeats, questions), what it knows of
// the other nodes, and the port where they reach it.
//
// Join registers once and blocks; afterwards everything is the loop's. When the connection to the head is lost, it is
// made again, and what runs here goes on meanwhile, as long as rules::NodeLease says so. When the head says that this
// node is dead to the others, `fenced` is called: everything here has to end at once, because others may do it again.
//
// When the lease is over, nobody may do anything here: a head that is not heard may have had it done elsewhere. So the
// node stands still: `still` is called, and then the whole daemon waits inside of Stand, which runs nothing but the
// connection to a head. The head, when it is heard again, or who took over from it, knows whether this node was
// declared dead. If not, nobody has done its work again, and it goes on. If nobody is heard for NodeWelcome::wait_us,
// it ends. For this the connection to the head is on a loop of its own, which the daemon's loop runs when it does run.
//
// Threads: the loop's. Callbacks come from the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "node/nodes.h"
#include "node/scheduler_link.h"
#include "rules/global_scheduler.h"
#include "rules/membership.h"
#include "wire/cluster_messages.h"
#include "wire/connection.h"
#include "wire/dial.h"
#include "wire/listener.h"

namespace manta::node {

struct ClusterConfig {
  std::string head;     // "host:port"; empty: a node on its own
  std::string secrets;  // folder; empty: the default one
  std::string listen = "127.0.0.1:0";
  bool tls = false;     // on this node's ports
  std::string machine;  // instead of what the system says; nodes with the same share files by path
};

class Cluster {
 public:
  static constexpr std::int64_t kHeartbeatUs = 100'000;
  static constexpr std::int64_t kSoonUs = 2'000;  // after a big change

  struct Events {
    // What a heartbeat says of the load; node, incarnation and sequence are filled in here.
    std::function<rules::Heartbeat()> load;
    // Came, changed or went; also this node itself.
    std::function<void(const wire::NodeFacts& node)> changed;
    std::function<void(bool stop, const std::string& why)> fenced;
    // Stop all that runs here, or let it go on.
    std::function<void(bool still)> still;
    std::function<void()> drain;
    // About placement groups and detached actors; false: it makes no sense.
    std::function<bool(const wire::Frame& frame)> groups;
  };
  using OnPlaced = std::function<void(Result<std::vector<rules::Placement>>)>;

  // Listens for other nodes.
  static Result<std::unique_ptr<Cluster>> Create(base::Loop& loop, ClusterConfig config);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Runs the loop until the head has given this node a number, or says why not. `facts` say what this node is.
  Status Join(wire::NodeFacts facts, Events events, std::int64_t timeout_us);
  // In order: the head tells the others that this node left.
  void Farewell(const std::string& why);

  // ---- questions ----

  // Asks this node's scheduler, if there are some beside the head, else the head. kUnavailable: it is out of reach.
  void Place(const rules::PlaceRequest& request, OnPlaced done);
  void Withdraw(std::uint64_t ticket);
  // Any other call to the head. kUnavailable as above, also when the connection is lost before the answer.
  template <typename Reply, typename M>
  void Ask(const M& message, std::function<void(Result<Reply>)> done) {
    const std::uint64_t call = next_call_++;
    AskFrame(wire::EncodeFrame(message, call), call, [done = std::move(done)](const Result<wire::Frame*>& frame) {
      if (!frame.ok()) return done(frame.status());
      done(frame.value()->template As<Reply>());
    });
  }
  // One-way; lost if the head is out of reach. False: it is.
  template <typename M>
  bool Tell(const M& message) {
    if (welcomed_) connection_->Send(message);
    return welcomed_;
  }
  // The load has changed a lot: a heartbeat soon.
  void LoadChanged();

  // ---- what is ----

  [[nodiscard]] const wire::NodeFacts& self() const { return self_; }
  [[nodiscard]] const std::map<NodeNumber, wire::NodeFacts>& nodes() const { return nodes_; }  // that live
  [[nodiscard]] const wire::NodeFacts* Find(NodeNumber node) const;
  [[nodiscard]] std::string NameOf(NodeNumber node) const;  // "n2", "node 7" if unknown
  [[nodiscard]] bool HasOthers() const { return nodes_.size() > 1; }
  [[nodiscard]] bool connected() const { return welcomed_; }
  [[nodiscard]] const Resources& job_quota() const { return job_quota_; }  // as in wire::NodeWelcome
  [[nodiscard]] Resources LargestTotal() const;                            // of each resource the most that a node has
  [[nodiscard]] Resources WholeTotal() const;                              // of all nodes

  [[nodiscard]] NodeLinks& links() { return *links_; }
  [[nodiscard]] const std::shared_ptr<wire::Secrets>& secrets() const { return secrets_; }
  [[nodiscard]] const ClusterConfig& config() const { return config_; }
  [[nodiscard]] bool AllSent() const;
  // Connections with role kTransfer, for who moves objects.
  void OnTransfer(std::function<void(wire::Link link)> callback) { on_transfer_ = std::move(callback); }

 private:
  Cluster(base::Loop& loop, std::unique_ptr<base::Loop> head_loop, ClusterConfig config)
      : loop_(loop), head_loop_(std::move(head_loop)), config_(std::move(config)), heads_(config_.head) {}

  using OnAnswer = std::function<void(const Result<wire::Frame*>& frame)>;
  void AskFrame(std::string frame, std::uint64_t call, OnAnswer done);
  bool Answer(wire::Frame& frame);

  void PlaceByHead(const rules::PlaceRequest& request, OnPlaced done);
  void Connect();
  void OnConnected(Result<wire::Link> link);
  void OnFrame(wire::Frame& frame);
  void OnLost(const Status& why);
  void OnWelcome(const wire::NodeWelcome& welcome);
  void OnNewToken(const wire::NewToken& changed);
  void OnView(const wire::ClusterView& view);
  void Apply(const wire::NodeFacts& facts);
  void ConnectAgain(const Status& why);
  void Beat();
  void CheckLease();
  void RunHead();
  // Runs it when its next timer is due.
  void ArmHead();
  void Stand();
  // The next attempt begins with the next of several heads.
  void NextHead();
  void Fenced(bool stop, const std::string& why);

  base::Loop& loop_;
  const std::unique_ptr<base::Loop> head_loop_;  // of dial_, connection_ and the timers of both
  const ClusterConfig config_;
  std::string heads_;  // as in config_, in the order in which they are tried
  Events events_;
  std::shared_ptr<wire::Secrets> secrets_;
  std::unique_ptr<NodeLinks> links_;
  std::unique_ptr<SchedulerLink> scheduler_;
  std::unique_ptr<wire::Listener> listener_;
  std::function<void(wire::Link)> on_transfer_;
  wire::NodeFacts self_;
  Resources job_quota_;
  std::map<NodeNumber, wire::NodeFacts> nodes_;

  std::unique_ptr<wire::Dial> dial_;
  std::unique_ptr<wire::Connection> connection_;
  std::vector<std::unique_ptr<wire::Connection>> former_;  // destroyed by the next attempt, not in a callback
  // To the head that fell silent. Stays open until another connection is made: if that head is only slow, its end
  // would be a death.
  std::unique_ptr<wire::Connection> silent_;
  bool welcomed_ = false;
  bool joined_ = false;   // at least once
  bool leaving_ = false;  // said farewell, or was fenced
  Status refused_;        // why Join must fail
  Status not_yet_;        // why it has not come about so far
  std::int64_t tried_us_ = 0;
  std::int64_t pause_us_ = 0;
  base::Loop::TimerId retry_ = 0;
  base::Loop::TimerId beat_timer_ = 0;
  base::Loop::TimerId soon_ = 0;
  base::Loop::TimerId hello_timer_ = 0;
  base::Loop::TimerId run_head_ = 0;  // of loop_
  std::int64_t wait_us_ = 0;          // as in NodeWelcome
  bool stand_ = false;                // to be done, or being done
  bool standing_ = false;
  std::uint64_t serial_ = 0;  // of connection_
  rules::NodeLease lease_;
  std::uint64_t sequence_ = 1;                               // 1 is the head's own, at the registration
  std::deque<std::pair<std::uint64_t, std::int64_t>> sent_;  // heartbeats without an answer, and when
  std::uint64_t next_call_ = 2;                              // 1 is the Hello's
  std::unordered_map<std::uint64_t, OnPlaced> placing_;
  std::unordered_map<std::uint64_t, OnAnswer> asking_;
};

}  // namespace manta::node
