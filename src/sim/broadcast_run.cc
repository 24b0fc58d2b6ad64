#include "sim/broadcast_run.h"

#include <algorithm>
#include <vector>

#include "sim/event_heap.h"
#include "sim/random.h"

namespace manta::sim {
namespace {

using rules::NodeId;

class Spreading {
 public:
  explicit Spreading(const BroadcastModel& model)
      : model_(model),
        random_(model.seed),
        rule_(model.options),
        chunks_(static_cast<std::uint32_t>((model.bytes + model.chunk - 1) / model.chunk)),
        nodes_(model.receivers + 2) {}

  BroadcastFigures Go() {
    nodes_[kSource].has = chunks_;
    rules::BroadcastActions actions;
    rule_.Has(kObject, kSource, &actions);
    std::int64_t at = 0;
    for (NodeId node = kSource + 1; node < nodes_.size(); ++node) {
      if (model_.apart_us > 0) at += Ns(random_.Exponential(model_.apart_us));
      events_.Push({at, kWant, node});
    }
    const double whole_us = static_cast<double>(model_.bytes) / model_.network.bytes_per_us;
    for (std::uint32_t i = 0; i < model_.deaths; ++i) {
      events_.Push({Ns(random_.Unit() * 2 * whole_us), kDeath,
                    static_cast<std::uint32_t>(kSource + 1 + random_.Below(model_.receivers))});
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.Pop();
      now_ns_ = event.at_ns;
      out_.trace = Mix(out_.trace ^ static_cast<std::uint64_t>(event.at_ns) ^
                       (static_cast<std::uint64_t>(event.kind) << 40) ^ event.what);
      Happen(event);
    }
    out_.one_seconds = (whole_us + model_.network.latency_us) / 1e6;
    if (out_.served > 0) out_.mean_seconds /= out_.served;
    return out_;
  }

 private:
  enum Kind : std::uint32_t { kWant, kDeath, kSent, kArrived };
  static constexpr NodeId kSource = 1;
  static constexpr Id kObject{1, 1};
  struct Node {
    std::uint32_t has = 0;       // chunks, in order
    std::uint32_t promised = 0;  // has, and those on their way to it
    NodeId from = rules::kNoNode;
    std::uint64_t transfer = 0;
    std::uint32_t epoch = 0;  // chunks of an earlier source are not counted twice
    std::vector<NodeId> feeds;
    std::size_t turn = 0;
    bool sending = false;
    bool dead = false;
  };
  struct Flight {
    NodeId to = 0;
    std::uint32_t epoch = 0;
  };

  static std::int64_t Ns(double us) { return static_cast<std::int64_t>(us * 1e3); }

  void Happen(const Event& event) {
    rules::BroadcastActions actions;
    switch (event.kind) {
      case kWant:
        if (!nodes_[event.what].dead) rule_.Want(kObject, event.what, &actions);
        break;
      case kDeath: {
        Node& node = nodes_[event.what];
        if (node.dead) break;
        node.dead = true;
        Unhook(event.what);
        rule_.NodeDown(event.what, &actions);
        break;
      }
      case kSent:
        nodes_[event.what].sending = false;
        Send(event.what);
        break;
      case kArrived: {
        const Flight flight = flights_[event.what];
        free_.push_back(event.what);
        Node& node = nodes_[flight.to];
        if (node.dead || node.epoch != flight.epoch) break;
        ++node.has;
        if (node.has == chunks_) {
          out_.seconds = std::max(out_.seconds, static_cast<double>(now_ns_) / 1e9);
          out_.mean_seconds += static_cast<double>(now_ns_) / 1e9;
          ++out_.served;
          const std::uint64_t transfer = node.transfer;
          Unhook(flight.to);
          rule_.Done(kObject, transfer, &actions);
        }
        Send(flight.to);
        break;
      }
      default:
        break;
    }
    for (const rules::BroadcastAction& action : actions) {
      if (const auto* fetch = std::get_if<rules::FetchFrom>(&action)) {
        Unhook(fetch->to);
        Node& node = nodes_[fetch->to];
        node.from = fetch->from;
        node.transfer = fetch->transfer;
        node.promised = node.has;
        nodes_[fetch->from].feeds.push_back(fetch->to);
        ++out_.transfers;
        out_.depth = std::max(out_.depth, rules::Broadcast::Depth(*rule_.Find(kObject), fetch->to));
        if (fetch->from == kSource) ++out_.source_copies;
        Send(fetch->from);
      } else if (const auto* stop = std::get_if<rules::StopFetch>(&action)) {
        Unhook(stop->to);
      }
    }
  }

  void Unhook(NodeId to) {
    Node& node = nodes_[to];
    if (node.from != rules::kNoNode) std::erase(nodes_[node.from].feeds, to);
    node.from = rules::kNoNode;
    ++node.epoch;
  }

  // The link takes the next chunk of whoever's turn it is.
  void Send(NodeId from) {
    Node& node = nodes_[from];
    if (node.sending || node.dead) return;
    for (std::size_t i = 0; i < node.feeds.size(); ++i) {
      const NodeId to = node.feeds[(node.turn + i) % node.feeds.size()];
      Node& receiver = nodes_[to];
      if (receiver.promised >= node.has || receiver.promised >= chunks_) continue;
      ++receiver.promised;
      node.turn = (node.turn + i + 1) % node.feeds.size();
      node.sending = true;
      const std::int64_t end = now_ns_ + Ns(static_cast<double>(model_.chunk) / model_.network.bytes_per_us);
      std::uint32_t flight = 0;
      if (free_.empty()) {
        flight = static_cast<std::uint32_t>(flights_.size());
        flights_.emplace_back();
      } else {
        flight = free_.back();
        free_.pop_back();
      }
      flights_[flight] = {to, receiver.epoch};
      events_.Push({end, kSent, from});
      events_.Push({end + Ns(model_.network.latency_us), kArrived, flight});
      return;
    }
  }

  const BroadcastModel model_;
  Random random_;
  rules::Broadcast rule_;
  const std::uint32_t chunks_;
  std::vector<Node> nodes_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;
  EventHeap events_;
  std::int64_t now_ns_ = 0;
  BroadcastFigures out_;
};

}  // namespace

BroadcastFigures RunBroadcast(const BroadcastModel& model) { return Spreading(model).Go(); }

}  // namespace manta::sim
