// Actor calls: one caller and one actor, one and many, many and many.
#include <manta/manta.h>

#include <vector>

#include "clients.h"
#include "rooms.h"
#include "work.h"

namespace bench {
namespace {

// Counts its calls: replies to one caller must come with consecutive serials.
class Server {
 public:
  Reply Call(std::uint64_t index) { return Reply{++calls_, index, MyPid()}; }

 private:
  std::uint64_t calls_ = 0;
};

using ServerHandle = manta::ActorHandle<Server>;

std::vector<ServerHandle> MakeServers(std::size_t count) {
  std::vector<ServerHandle> servers;
  for (std::size_t i = 0; i < count; ++i) servers.push_back(manta::Actor<Server>().Remote());
  for (const ServerHandle& server : servers) server.Task(&Server::Call).Remote(0).Get();
  return servers;
}

// The order of one caller's calls is promised, so it is checked.
void CheckNext(const Reply& reply, std::uint64_t index, std::uint64_t serial) {
  if (reply.index != index || reply.serial != serial || reply.pid == MyPid() || reply.pid == 0) {
    Fail("call " + std::to_string(index) + " got the answer of " + std::to_string(reply.index) + ", as number " +
         std::to_string(reply.serial) + " of its actor instead of " + std::to_string(serial));
  }
}

std::vector<double> Sync(double seconds) {
  const std::vector<ServerHandle> servers = MakeServers(1);
  auto call = servers[0].Task(&Server::Call);
  for (std::uint64_t i = 0; i < kBatch; ++i) CheckNext(call.Remote(i).Get(), i, i + 2);
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.empty() || Now() < end;) {
    const std::uint64_t index = samples.size();
    const double begin = Now();
    CheckNext(call.Remote(index).Get(), index, kBatch + index + 2);
    samples.push_back(Now() - begin);
  }
  return {Percentile(samples, 0.5) * 1e6, Percentile(samples, 0.99) * 1e6};
}

// The driver calls `count` actors in turn.
double OneToMany(double seconds, std::size_t count) {
  const std::vector<ServerHandle> servers = MakeServers(count);
  std::vector<manta::MethodCaller<Server, Reply (Server::*)(std::uint64_t)>> calls;
  for (const ServerHandle& server : servers) calls.push_back(server.Task(&Server::Call));
  std::vector<manta::Ref<Reply>> refs(kBatch);
  std::uint64_t next = 0;
  double begin = 0;
  double now = 0;
  std::uint64_t counted = 0;
  for (bool warm = true; warm || now - begin < seconds; warm = false, now = Now()) {
    for (std::size_t i = 0; i < kBatch; ++i) refs[i] = calls[(next + i) % count].Remote(next + i);
    for (std::size_t i = 0; i < kBatch; ++i) CheckNext(refs[i].Get(), next + i, (next + i) / count + 2);
    next += kBatch;
    if (warm) begin = Now(), counted = next;
  }
  return static_cast<double>(next - counted) / (now - begin);
}

// A caller in a process of its own.
class Client {
 public:
  explicit Client(std::vector<ServerHandle> servers) : servers_(std::move(servers)) {}

  // Calls all servers in turn.
  Tally Call(std::uint64_t count) {
    Tally tally;
    std::vector<manta::Ref<Reply>> refs(kBatch);
    for (std::uint64_t next = 0; next < count; next += kBatch) {
      for (std::size_t i = 0; i < kBatch; ++i) {
        refs[i] = servers_[i % servers_.size()].Task(&Server::Call).Remote(next + i);
      }
      for (std::size_t i = 0; i < kBatch; ++i) tally.Add(refs[i].Get(), next + i);
    }
    return tally;
  }

  // The same with a value that this client has put.
  Tally CallWithArgument(std::uint64_t count) {
    Tally tally;
    std::vector<manta::Ref<Reply>> refs(kBatch);
    for (std::uint64_t next = 0; next < count; next += kBatch) {
      const manta::Ref<std::uint64_t> value = manta::Put(next);
      for (std::size_t i = 0; i < kBatch; ++i) {
        refs[i] = servers_[i % servers_.size()].Task(&Server::Call).Remote(value);
      }
      for (const auto& ref : refs) tally.Add(ref.Get(), next);
    }
    return tally;
  }

 private:
  std::vector<ServerHandle> servers_;
};

double ManyToMany(double seconds, Tally (Client::*method)(std::uint64_t)) {
  const std::vector<ServerHandle> servers = MakeServers(ClientCount());
  std::vector<manta::ActorHandle<Client>> clients;
  for (std::size_t i = 0; i < ClientCount(); ++i) clients.push_back(manta::Actor<Client>().Remote(servers));
  return CallsPerSecond(seconds, clients, method);
}

}  // namespace

void AddActors(Suite& suite, Baselines& baselines) {
  const auto rate = [&](const std::string& name, std::function<double(double)> run) {
    suite.Add({.metrics = {{name, "calls/s", baselines.RingPerSecond()}},
               .run = [run](double seconds) { return std::vector<double>{run(seconds)}; }});
  };
  suite.Add({.metrics = {{"1_1_actor_calls_sync", "us", baselines.RingTripUs()},
                         {"1_1_actor_calls_sync_p99", "us", baselines.RingTripUs()}},
             .run = Sync});
  rate("1_1_actor_calls_async", [](double seconds) { return OneToMany(seconds, 1); });
  rate("1_n_actor_calls_async", [](double seconds) { return OneToMany(seconds, ClientCount()); });
  rate("n_n_actor_calls_async", [](double seconds) { return ManyToMany(seconds, &Client::Call); });
  rate("n_n_actor_calls_with_arg", [](double seconds) { return ManyToMany(seconds, &Client::CallWithArgument); });
}

}  // namespace bench
