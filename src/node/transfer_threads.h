// TransferThreads moves bytes between this node's store and others', off the daemon's loop: a thread for each
// connection that somebody fetches over, and threads that fetch for this node.
//
// A Pull fetches what an Incoming lacks from one source over one or more streams, each a connection of role kTransfer
// with two parts asked for at a time, so that the source never waits for us. Connections are kept for the next pull.
//
// What is served: objects of this store by their place, copies by their id, and objects that are just coming in.
//
// Threads: public methods from the loop's; callbacks come on the loop's. Destroying it ends and joins all threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "node/incoming.h"
#include "node/mailbox.h"
#include "node/transfer_store.h"
#include "node/transfer_wire.h"
#include "wire/cluster_messages.h"
#include "wire/dial.h"

namespace manta::node {

struct TransferOptions {
  std::shared_ptr<wire::Secrets> secrets;
  bool always_tls = false;  // also within this machine
  std::size_t part_bytes = 4U << 20;
  std::size_t streams = 4;               // of one object, at most …
  std::size_t stream_bytes = 16U << 20;  // … one for each so many bytes
  std::size_t kept = 8;                  // idle connections to one node
};

// Only grow.
struct TransferCounters {
  std::atomic<std::uint64_t> pulls{0};  // begun
  std::atomic<std::uint64_t> streams{0};
  std::atomic<std::uint64_t> bytes_in{0};
  std::atomic<std::uint64_t> bytes_out{0};
  std::atomic<std::uint64_t> corrupt_parts{0};
  std::atomic<std::uint64_t> dialled{0};
};

class TransferThreads {
 public:
  struct Ended {
    Result<Place> place;       // the copy's, or what went wrong
    bool refused = false;      // it does not fit here
    bool source_gone = false;  // the source does not have it
  };
  using OnEnd = std::function<void(const Ended&)>;
  class Pull;

  TransferThreads(Mailbox& mailbox, store::Keeper& keeper, NodeNumber self, TransferOptions options);
  ~TransferThreads();
  TransferThreads(const TransferThreads&) = delete;
  TransferThreads& operator=(const TransferThreads&) = delete;

  // An object that will come: others may ask for it from now on.
  std::shared_ptr<Incoming> Expect(const Id& object, const Place& origin);
  // It will not.
  void Forget(const std::shared_ptr<Incoming>& incoming);
  // Fetches what it lacks. `on_end` is called once; when the object is whole, the copy is known here already.
  std::shared_ptr<Pull> Start(std::shared_ptr<Incoming> incoming, NodeNumber from, const std::string& address,
                              OnEnd on_end);
  static void Stop(Pull& pull);  // on_end follows

  // Copies, by id.
  [[nodiscard]] Place FindCopy(const Id& object) const;  // nowhere: none
  Place ForgetCopy(const Id& object);

  // Serves a connection of role kTransfer until it ends.
  void Serve(wire::Link link);
  // Ends all connections to the node.
  void NodeDown(NodeNumber node);

  [[nodiscard]] const TransferCounters& counters() const { return counters_; }

 private:
  struct Serving {
    TransferWire wire;
    std::thread thread;
    std::atomic<bool> done{false};
    explicit Serving(wire::Stream stream) : wire(std::move(stream)) {}
  };

  void Run(std::function<void()> job, bool must);
  void Work();
  void Fetch(const std::shared_ptr<Pull>& pull, bool first);
  Status FetchOver(Pull& pull, TransferWire& wire, bool* used);
  void End(const std::shared_ptr<Pull>& pull);
  Result<std::unique_ptr<TransferWire>> Connect(Pull& pull, bool* fresh);
  void Keep(NodeNumber node, std::unique_ptr<TransferWire> wire);
  void ServeLoop(Serving& serving);
  Status ServePart(TransferWire& wire, const wire::FetchPart& request);

  Mailbox& mailbox_;
  const NodeNumber self_;
  const TransferOptions options_;
  TransferStore store_;
  TransferCounters counters_;
  std::list<std::unique_ptr<Serving>> serving_;  // the loop's
  std::mutex small_rooms_;                       // held while room for a small object is looked for

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable more_;
  bool stopping_ = false;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
  std::vector<std::thread> threads_;
  std::unordered_map<Id, std::shared_ptr<Incoming>> incoming_;
  std::unordered_map<Id, Place> copies_;
  std::map<NodeNumber, std::vector<std::unique_ptr<TransferWire>>> kept_;
  std::list<std::weak_ptr<Pull>> pulls_;
};

}  // namespace manta::node
