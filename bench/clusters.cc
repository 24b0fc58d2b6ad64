// Several nodes on this machine, over real sockets: tasks and objects between them, and how fast nodes come.
#include <fcntl.h>
#include <sched.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "between.h"
#include "nodes.h"
#include "rooms.h"
#include "tcp.h"

namespace bench {
namespace {

constexpr std::size_t kGigabyteObject = 1'000'000'000;
constexpr std::size_t kBroadcastBytes = 100'000'000;
constexpr std::size_t kCallBytes = 96;  // about those of a task on the wire

NodesOptions Two() {
  NodesOptions options;
  options.store_bytes = 3ULL << 30;
  return options;
}

// A network namespace whose only device is the loopback one, with an address that is none of 127/8: traffic costs what
// it costs at 127.0.0.1, but nodes take the address for one that others can reach, and encrypt.
class WideAddress {
 public:
  static constexpr const char* kListen = "198.51.100.1:0";

  WideAddress() {
    if (home_ < 0 || ::unshare(CLONE_NEWNET) != 0) Skip("cannot make a network namespace (needs root)");
    there_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    const int made = std::system("ip link set lo up && ip addr add 198.51.100.1/32 dev lo");
    if (::setns(home_, CLONE_NEWNET) != 0) Fail("cannot leave a network namespace");
    if (there_ < 0 || made != 0) Skip("cannot give a network namespace an address (needs iproute2)");
  }
  // Not copied: descriptors stay open until the program ends, as the cluster in there does.
  WideAddress(const WideAddress&) = delete;
  WideAddress& operator=(const WideAddress&) = delete;

  // What this thread starts and connects to until the end of the scope is in there.
  class Scope {
   public:
    explicit Scope(const WideAddress& wide) : home_(wide.home_) {
      if (::setns(wide.there_, CLONE_NEWNET) != 0) Fail("cannot enter a network namespace");
    }
    ~Scope() {
      if (::setns(home_, CLONE_NEWNET) != 0) std::abort();  // what follows would run in the wrong place
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    int home_;
  };

 private:
  int home_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  int there_ = -1;
};

// Clusters and baselines, made when first asked for.
class State {
 public:
  TcpEcho& Echo() {
    return Made(echo_, [] { return new TcpEcho(); });
  }
  const Nodes& Plain() {
    return Made(plain_, [] { return new Nodes(Two()); });
  }
  // Measures as a driver of a cluster under TLS.
  double UnderTls(const std::function<double()>& measure) {
    const WideAddress::Scope scope(Made(wide_, [] { return new WideAddress(); }));
    const Nodes& nodes = Made(tls_, [] {
      NodesOptions options = Two();
      options.listen = WideAddress::kListen;
      return new Nodes(options);
    });
    const Nodes::Driver driver(nodes);
    return measure();
  }
  const Nodes& Nine() {
    return Made(nine_, [] {
      NodesOptions options;
      options.count = 9;
      return new Nodes(options);
    });
  }
  const Nodes& Roomy() {  // CPUs for tasks that make arguments and for those that read them
    return Made(roomy_, [] {
      NodesOptions options;
      options.cpus = 4;
      options.store_bytes = 1ULL << 30;
      return new Nodes(options);
    });
  }
  double single = 0;  // GB/s of one transfer, just measured

 private:
  template <typename T, typename F>
  T& Made(std::unique_ptr<T>& what, F make) {
    if (echo_ == nullptr) echo_ = std::make_unique<TcpEcho>();  // before there is much memory to fork
    if (what == nullptr) what.reset(make());
    return *what;
  }
  std::unique_ptr<TcpEcho> echo_;
  std::unique_ptr<Nodes> plain_;
  std::unique_ptr<WideAddress> wide_;
  std::unique_ptr<Nodes> tls_;
  std::unique_ptr<Nodes> nine_;
  std::unique_ptr<Nodes> roomy_;
};

template <typename F>
double Drive(const Nodes& nodes, F measure) {
  const Nodes::Driver driver(nodes);
  return measure();
}

double JoinMs() {
  NodesOptions options;
  options.count = 1;
  Nodes nodes(options);
  const double begin = Now();
  nodes.Add();
  return (Now() - begin) * 1e3;
}

double TenUpMs() {
  const TemporaryFolder folder;
  const std::string secrets = folder.path() + "/secrets";
  const double begin = Now();
  static_cast<void>(
      RunManta({"--secrets", secrets, "cluster", "--nodes", "10", "--store-bytes", "67108864", "--background"}));
  const double ms = (Now() - begin) * 1e3;
  static_cast<void>(RunManta({"--secrets", secrets, "stop"}));
  return ms;
}

}  // namespace

void AddClusters(Suite& suite, Baselines& baselines) {
  auto state = std::make_shared<State>();
  const auto add = [&](std::vector<Metric> metrics, std::function<std::vector<double>(double)> run,
                       bool warm_up = false) {
    suite.Add({.metrics = std::move(metrics), .cluster = Cluster::kDown, .warm_up = warm_up, .run = std::move(run)});
  };
  add({{"remote_task_sync",
        "us",
        {"bare blocking TCP ping-pong", [state] { return state->Echo().TripUs(0.25, kCallBytes); }}}},
      [state](double seconds) { return std::vector{Drive(state->Plain(), [&] { return FarSyncUs(seconds); })}; });
  for (const bool tls : {false, true}) {
    add({{tls ? "remote_actor_reply_behind_slow_call_tls" : "remote_actor_reply_behind_slow_call",
          "us",
          {"bare blocking TCP ping-pong", [state] { return state->Echo().TripUs(0.25, kCallBytes); }}}},
        [state, tls](double seconds) {
          const auto measure = [&] { return FarReplyUs(seconds); };
          return std::vector{tls ? state->UnderTls(measure) : Drive(state->Plain(), measure)};
        });
  }
  const Baseline echoed{"bare TCP, 1,000 calls' bytes in a write, echoed",
                        [state] { return state->Echo().PerSecond(0.25, kCallBytes, 1000); }};
  add({{"remote_tasks_async", "tasks/s", echoed}},
      [state](double seconds) { return std::vector{Drive(state->Plain(), [&] { return FarAsync(seconds); })}; });
  add({{"remote_tasks_async_tls",
        "tasks/s",
        {"the same without TLS", [state] { return Drive(state->Plain(), [] { return FarAsync(0.25); }); }}}},
      [state](double seconds) { return std::vector{state->UnderTls([&] { return FarAsync(seconds); })}; });
  add(
      {{"transfer_1gb",
        "GB/s",
        {"bare TCP into touched memory", [] { return TcpBulk(kGigabyteObject).GigabytesPerSecond(); }}}},
      [state](double) { return std::vector{Drive(state->Plain(), [] { return Transfer(kGigabyteObject); })}; }, true);
  add(
      {{"transfer_1gb_tls",
        "GB/s",
        {"the same without TLS", [state] { return Drive(state->Plain(), [] { return Transfer(kGigabyteObject); }); }}}},
      [state](double) { return std::vector{state->UnderTls([] { return Transfer(kGigabyteObject); })}; }, true);
  const Baseline once{"one transfer of it", [state] {
                        return Drive(state->Nine(), [] {
                          return static_cast<double>(kBroadcastBytes) / 1e6 / Transfer(kBroadcastBytes);
                        });
                      }};
  add(
      {{"broadcast_100mb_to_8", "ms", once},
       {"broadcast_100mb_to_8_source_sends", "copies", {"two", [] { return 2.0; }}}},
      [state](double) {
        const Nodes::Driver driver(state->Nine());
        const BroadcastRun run = Broadcast(state->Nine(), kBroadcastBytes);
        return std::vector{run.seconds * 1e3, run.copies};
      },
      true);
  for (const bool aware : {true, false}) {
    const std::string how = aware ? "locality_aware_" : "locality_unaware_";
    const Baseline small{"the same at 100 KB", [state, aware] {
                           return Drive(state->Roomy(), [&] { return Locality(100'000, 200, aware, 1).mean_us; });
                         }};
    for (const auto& [name, bytes, tasks] : {std::tuple{"1mb", 1'000'000, 200}, std::tuple{"10mb", 10'000'000, 100},
                                             std::tuple{"100mb", 100'000'000, 20}}) {
      add({{how + name, "us", small}}, [state, aware, size = bytes, count = tasks](double) {
        return std::vector{Drive(state->Roomy(), [&] {
          return Locality(static_cast<std::size_t>(size), static_cast<std::size_t>(count), aware, 2).mean_us;
        })};
      });
    }
  }
  add({{"node_joins", "ms", baselines.SpawnMs()}}, [](double) { return std::vector{JoinMs()}; });
  add({{"ten_nodes_up", "ms", baselines.SpawnMs()}}, [](double) { return std::vector{TenUpMs()}; });
}

}  // namespace bench
