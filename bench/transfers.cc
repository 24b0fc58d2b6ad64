// manta-bench-transfers: objects between nodes, over loopback. 1 GB from one store into another, beside bare TCP into
// memory that was touched before; the same under TLS; and 100 MB to eight nodes. Every node has a loop and a thread of
// its own. Rounds take turns, so that all see the same weather; what is printed are medians.
#include "node/transfers.h"

#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "node/nodes.h"
#include "node/transfer_store.h"
#include "wire/listener.h"
#include "wire/scratch_folder.h"

namespace {

using namespace manta;        // NOLINT(google-build-using-namespace)
using namespace manta::node;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kPiece = 1U << 20;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "manta-bench-transfers: %s\n", status.message().c_str());
  std::exit(1);
}

// Of all threads of this program, so far. Tells what something costs also when others use the machine.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Nodes final : public FarNodes {
 public:
  explicit Nodes(NodeLinks& links) : links_(links) {}
  [[nodiscard]] NodeNumber self() const override { return links_.self(); }
  [[nodiscard]] bool Knows(NodeNumber node) const override { return links_.Knows(node); }
  void SendFrame(NodeNumber node, std::string frame) override { links_.SendEncoded(node, std::move(frame)); }
  [[nodiscard]] std::string AddressFor(NodeNumber node) const override {
    const std::string* address = links_.AddressOf(node);
    return address == nullptr ? std::string() : *address;
  }

 private:
  NodeLinks& links_;
};

// A store, its transfers and its links, on a loop of their own.
class Node {
 public:
  Node(NodeNumber number, std::uint64_t bytes, const std::shared_ptr<wire::Secrets>& secrets, bool tls)
      : loop_(std::move(*base::Loop::Create())), number_(number) {
    store::KeeperConfig config;
    config.node = Cat("n", number);
    config.number = number;
    config.capacity = bytes;
    config.idle_us = 600'000'000;
    keeper_ = std::make_unique<store::Keeper>(config);
    links_ = std::make_unique<NodeLinks>(*loop_, secrets);
    links_->SetSelf(number, 1);
    nodes_ = std::make_unique<Nodes>(*links_);
    TransferOptions options;
    options.secrets = secrets;
    options.always_tls = tls;
    if (const char* streams = std::getenv("STREAMS")) options.streams = static_cast<std::size_t>(std::atoi(streams));
    if (const char* part = std::getenv("PART_MB")) options.part_bytes = static_cast<std::size_t>(std::atoi(part)) << 20;
    Result<std::unique_ptr<Transfers>> transfers = Transfers::Create(*loop_, *nodes_, *keeper_, options);
    Check(transfers.status());
    transfers_ = std::move(*transfers);
    On(&Transfers::FarWant);
    On(&Transfers::FarForgo);
    On(&Transfers::FarFetchFrom);
    On(&Transfers::FarStopFetch);
    On(&Transfers::FarCopyLost);
    On(&Transfers::FarFetched);
    On(&Transfers::FarFetchFailed);
    On(&Transfers::FarCopyDropped);
    On(&Transfers::FarFree);
    wire::ListenOptions listen;
    listen.secrets = secrets;
    listen.tls = tls;
    Result<std::unique_ptr<wire::Listener>> listener = wire::Listener::Create(*loop_, listen, [this](wire::Link link) {
      if (link.role == wire::LinkRole::kTransfer) {
        transfers_->Accepted(std::move(link));
      } else {
        links_->Accepted(std::move(link));
      }
    });
    Check(listener.status());
    listener_ = std::move(*listener);
    Result<std::unique_ptr<Mailbox>> mailbox = Mailbox::Create(*loop_);
    Check(mailbox.status());
    mailbox_ = std::move(*mailbox);
    process_ = std::make_unique<TransferStore>(*mailbox_, *keeper_, OnNode(number, 1));
  }
  ~Node() {
    Do([this] { loop_->Stop(); });
    thread_.join();
    process_->Stop();
    process_.reset();
    listener_.reset();
    transfers_.reset();
    links_.reset();
    mailbox_.reset();
  }
  void Knows(const Node& other) { links_->NodeUp(other.number_, other.listener_->address()); }
  void Start() {
    loop_->Every(5000, [this] { keeper_->Tick(base::NowMicros()); });
    thread_ = std::thread([this] { loop_->Run(); });
  }
  void Do(std::function<void()> call) { mailbox_->Post(std::move(call)); }
  template <typename F>
  void DoAndWait(F call) {
    std::promise<void> done;
    Do([&] {
      call();
      done.set_value();
    });
    done.get_future().wait();
  }

  Place Put(const Id& object, std::uint64_t size) {
    Result<store::Allocation> room = process_->client().Allocate(object, process_->self(), size);
    Check(room.status());
    for (std::uint64_t at = 0; at < size; at += 8) {
      const std::uint64_t word = Mix(at);
      std::memcpy(room->data + at, &word, std::min<std::uint64_t>(8, size - at));
    }
    return process_->client().Seal(*room);
  }
  std::future<Place> Fetch(const Id& object, const Place& place) {
    auto done = std::make_shared<std::promise<Place>>();
    Do([=, this] {
      transfers_->Fetch(object, place, OnNode(place.node, 1), [done](const Result<Place>& here) {
        Check(here.status());
        done->set_value(here.value());
      });
    });
    return done->get_future();
  }
  void Forget(const Id& object) {
    DoAndWait([&] { transfers_->FarFree(0, wire::FarFree{{object}, {Place{}}}); });
  }
  [[nodiscard]] const TransferCounters& counters() const { return transfers_->counters(); }

 private:
  template <typename M>
  void On(void (Transfers::*method)(NodeNumber, const M&)) {
    links_->On<M>([this, method](NodeNumber from, const M& message, std::uint64_t) {
      (transfers_.get()->*method)(from, message);
    });
  }

  std::unique_ptr<base::Loop> loop_;
  const NodeNumber number_;
  std::unique_ptr<store::Keeper> keeper_;
  std::unique_ptr<NodeLinks> links_;
  std::unique_ptr<Nodes> nodes_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<wire::Listener> listener_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<TransferStore> process_;
  std::thread thread_;
};

std::vector<std::unique_ptr<Node>> Cluster(std::size_t count, std::uint64_t bytes,
                                           const std::shared_ptr<wire::Secrets>& secrets, bool tls) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::size_t i = 1; i <= count; ++i) {
    nodes.push_back(std::make_unique<Node>(static_cast<NodeNumber>(i), bytes, secrets, tls));
  }
  for (auto& one : nodes) {
    for (auto& other : nodes) {
      if (one != other) one->Knows(*other);
    }
  }
  for (auto& one : nodes) one->Start();
  return nodes;
}

// Seconds of one fetch by the second node; the copy is gone afterwards.
double Once(Node& to, const Id& object, const Place& place) {
  const std::int64_t start = base::NowMicros();
  to.Fetch(object, place).wait();
  const double seconds = static_cast<double>(base::NowMicros() - start) / 1e6;
  to.Forget(object);
  return seconds;
}

// ---- bare TCP ----

struct Memory {
  explicit Memory(std::size_t size)
      : data(static_cast<std::byte*>(
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {
    std::memset(data, 1, size);
  }
  std::byte* data;
};

void Pair(base::Fd* near, base::Fd* far) {
  const wire::SocketAddress any = wire::Resolve(wire::Address{"127.0.0.1", 0}).value().front();
  const base::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  near->Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), any.get(), any.size) != 0 || listen(listener.get(), 1) != 0) std::abort();
  const wire::SocketAddress where = wire::LocalOf(listener.get());
  if (connect(near->get(), where.get(), where.size) != 0) std::abort();
  far->Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

double Bare(const Memory& from, const Memory& into, std::size_t bytes, std::size_t connections) {
  std::vector<base::Fd> near(connections);
  std::vector<base::Fd> far(connections);
  for (std::size_t i = 0; i < connections; ++i) Pair(&near[i], &far[i]);
  std::vector<std::thread> threads;
  const std::int64_t start = base::NowMicros();
  const std::size_t share = bytes / connections;
  for (std::size_t i = 0; i < connections; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t at = 0; at < share;) {
        const ssize_t sent = send(near[i].get(), from.data + i * share + at, std::min(kPiece, share - at), 0);
        if (sent <= 0) std::abort();
        at += static_cast<std::size_t>(sent);
      }
    });
    threads.emplace_back([&, i] {
      for (std::size_t at = 0; at < share;) {
        const ssize_t got = recv(far[i].get(), into.data + i * share + at, std::min(kPiece, share - at), MSG_WAITALL);
        if (got <= 0) std::abort();
        at += static_cast<std::size_t>(got);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(base::NowMicros() - start) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = (argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 1024) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  const wire::ScratchFolder scratch;
  Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::OpenOrCreate(scratch / "secrets");
  Check(secrets.status());
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  {
    const Memory from(bytes);
    const Memory into(bytes);
    auto plain = Cluster(2, 2 * bytes, *secrets, false);
    auto tls = Cluster(2, 2 * bytes, *secrets, true);
    const Id object{1, 1};
    const Place place = plain[0]->Put(object, bytes);
    const Place tls_place = tls[0]->Put(object, bytes);
    const double cold = Once(*plain[1], object, place);
    Once(*tls[1], object, tls_place);
    std::vector<double> bare1;
    std::vector<double> bare4;
    std::vector<double> ours;
    std::vector<double> ours_tls;
    std::array<std::vector<double>, 4> cpu;
    for (int i = 0; i < rounds; ++i) {
      const auto measure = [&](std::size_t which, std::vector<double>* into_times, const auto& run) {
        const double before = CpuSeconds();
        into_times->push_back(run());
        cpu[which].push_back((CpuSeconds() - before) / gigabytes * 1e3);
      };
      measure(0, &bare1, [&] { return Bare(from, into, bytes, 1); });
      measure(1, &ours, [&] { return Once(*plain[1], object, place); });
      measure(2, &bare4, [&] { return Bare(from, into, bytes, 4); });
      measure(3, &ours_tls, [&] { return Once(*tls[1], object, tls_place); });
    }
    std::printf("processor time per GB: bare %.0f and %.0f ms, transfer %.0f, under TLS %.0f\n", Median(cpu[0]),
                Median(cpu[2]), Median(cpu[1]), Median(cpu[3]));
    const double bare = std::min(Median(bare1), Median(bare4));
    std::printf("%zu MB, store to store, median of %d\n", bytes >> 20, rounds);
    std::printf("  bare TCP, one connection    %6.2f GB/s\n", gigabytes / Median(bare1));
    std::printf("  bare TCP, four connections  %6.2f GB/s\n", gigabytes / Median(bare4));
    std::printf("  transfer                    %6.2f GB/s  %3.0f%% of the better one\n", gigabytes / Median(ours),
                100 * bare / Median(ours));
    std::printf("  transfer, first             %6.2f GB/s\n", gigabytes / cold);
    std::printf("  transfer under TLS          %6.2f GB/s  %3.0f%% of plain\n", gigabytes / Median(ours_tls),
                100 * Median(ours) / Median(ours_tls));
    std::vector<double> small;
    const Id little{2, 2};
    const Place at = plain[0]->Put(little, 100'000);
    for (int i = 0; i < 300; ++i) small.push_back(Once(*plain[1], little, at));
    std::printf("  100 KB                      %6.0f us\n", Median(small) * 1e6);
    munmap(from.data, bytes);
    munmap(into.data, bytes);
  }
  {
    constexpr std::uint64_t kBroadcast = 100'000'000;
    auto nodes = Cluster(9, 256U << 20, *secrets, false);
    const Id object{3, 3};
    const Place place = nodes[0]->Put(object, kBroadcast);
    std::vector<double> one;
    std::vector<double> all;
    std::uint64_t most = 0;
    for (int i = 0; i <= rounds; ++i) {
      const double single = Once(*nodes[1], object, place);
      const std::uint64_t before = nodes[0]->counters().bytes_out.load();
      const std::int64_t start = base::NowMicros();
      std::vector<std::future<Place>> fetches;
      for (std::size_t n = 1; n < nodes.size(); ++n) fetches.push_back(nodes[n]->Fetch(object, place));
      for (std::future<Place>& fetch : fetches) fetch.wait();
      const double seconds = static_cast<double>(base::NowMicros() - start) / 1e6;
      most = std::max(most, nodes[0]->counters().bytes_out.load() - before);
      for (std::size_t n = 1; n < nodes.size(); ++n) nodes[n]->Forget(object);
      if (i == 0) continue;  // fresh memory
      one.push_back(single);
      all.push_back(seconds);
    }
    std::printf("100 MB to eight nodes, median of %d\n", rounds);
    std::printf("  one transfer                %6.1f ms\n", Median(one) * 1e3);
    std::printf("  broadcast                   %6.1f ms  %.1f x one; the source sent at most %.1f copies\n",
                Median(all) * 1e3, Median(all) / Median(one), static_cast<double>(most) / kBroadcast);
  }
  return 0;
}
