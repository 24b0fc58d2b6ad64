// The control store in a process of its own, over loopback TCP: durable writes to its log, lineage in batches, and
// Redis behind it. Beside each: the same bytes written, synced, or sent back and forth without it.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/loop.h"
#include "control/embedded_storage.h"
#include "control/redis_storage.h"
#include "control/server.h"
#include "control/tables.h"
#include "nodes.h"
#include "rooms.h"
#include "wire/control_client.h"

namespace bench {
namespace {

using manta::Result;
using manta::Status;
using manta::base::Fd;
using manta::base::Loop;
using manta::wire::ControlWritten;
using manta::wire::Table;

constexpr std::size_t kKeyBytes = 25;
constexpr std::size_t kValueBytes = 512;
constexpr std::size_t kReplyBytes = 40;      // about those of an answer
constexpr std::size_t kRecordBytes = 64;     // of a lineage record
constexpr std::size_t kBatchRecords = 1000;  // under one key
constexpr int kBatchesInFlight = 64;
constexpr char kPassword[] = "of-a-benchmark";

std::string KeyOf(std::uint64_t index) {
  std::string key = "key:" + std::to_string(index);
  key.resize(kKeyBytes, '.');
  return key;
}

void Check(bool ok, const std::string& what) {
  if (!ok) Fail(what + ": " + std::strerror(errno));
}

// A process that ends with this object, and with this program.
class Child {
 public:
  Child() = default;
  explicit Child(std::vector<std::string> words, int inherit = -1) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    Check(pid_ >= 0, "cannot fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    if (inherit >= 0) ::dup2(inherit, 3);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

// Connected to each other over loopback; nobody listens afterwards.
std::pair<Fd, Fd> TcpPair() {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  Check(::bind(listener.get(), raw, size) == 0 && ::listen(listener.get(), 1) == 0, "cannot listen");
  ::getsockname(listener.get(), raw, &size);
  Fd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Check(::connect(one.get(), raw, size) == 0, "cannot connect");
  Fd other(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Check(other.valid(), "cannot accept");
  const int on = 1;
  for (const Fd* fd : {&one, &other}) ::setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {std::move(one), std::move(other)};
}

void Send(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    Check(count > 0, "cannot send");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}
void Receive(int fd, std::size_t bytes) {
  char buffer[4096];
  while (bytes > 0) {
    const ssize_t count = ::recv(fd, buffer, std::min(bytes, sizeof buffer), 0);
    Check(count > 0, "the other end is gone");
    bytes -= static_cast<std::size_t>(count);
  }
}

// One at a time for so long: p50 in microseconds.
double MedianUs(double seconds, const std::function<void()>& once) {
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
    const double begin = Now();
    once();
    samples.push_back(Now() - begin);
  }
  return Percentile(samples, 0.5) * 1e6;
}

// A control process over `storage`, and a client here. Closing the connection ends the process.
class ControlStore {
 public:
  explicit ControlStore(const std::string& storage) : loop_(std::move(*Loop::Create())) {
    auto [ours, theirs] = TcpPair();
    child_ = Child({"/proc/self/exe", "--serve-control", storage}, theirs.get());
    ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    socket_ = std::move(ours);
    client_ =
        std::make_unique<manta::wire::ControlClient>(*loop_, [this](const manta::wire::ControlClient::Connected& done) {
          if (!socket_.valid()) Fail("the control process is gone");
          done(manta::wire::Stream(std::move(socket_)));
        });
  }
  void Put(Table table, std::string key, std::string value) {
    bool done = false;
    client_->Put(table, std::move(key), std::move(value), [&](const Result<ControlWritten>& result) {
      if (!result.ok()) Fail(result.status().message());
      done = true;
    });
    while (!done) loop_->RunOnce(-1);
  }
  void Get(Table table, std::string key, std::size_t expected) {
    bool done = false;
    client_->Get(table, std::move(key), [&](const Result<manta::wire::ControlValue>& result) {
      if (!result.ok()) Fail(result.status().message());
      if (result.value().value.size() != expected) Fail("another value came back than was put");
      done = true;
    });
    while (!done) loop_->RunOnce(-1);
  }
  manta::wire::ControlClient& client() { return *client_; }
  Loop& loop() { return *loop_; }

 private:
  std::unique_ptr<Loop> loop_;
  Child child_;
  Fd socket_;
  std::unique_ptr<manta::wire::ControlClient> client_;
};

// What all rows share; made when the first of them runs, gone with the last.
struct State {
  TemporaryFolder folder;
  std::uint64_t next = 0;

  // ---- the disk ----
  Fd file;
  std::optional<ControlStore> embedded;
  std::unique_ptr<Loop> loop = std::move(*Loop::Create());
  std::unique_ptr<manta::control::EmbeddedStorage> storage;

  void OpenFile() {
    if (file.valid()) return;
    file.Reset(::open((folder.path() + "/file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    Check(file.valid(), "cannot make a file");
  }
  double AppendAndSyncUs(double seconds) {
    OpenFile();
    const std::string record(kKeyBytes + kValueBytes + 64, 'r');
    return MedianUs(seconds, [&] {
      Check(::write(file.get(), record.data(), record.size()) > 0 && ::fdatasync(file.get()) == 0, "cannot sync");
    });
  }
  // As many records a second as go into a file, synced every 8 MB.
  double AppendRecords(double seconds) {
    OpenFile();
    const std::string chunk(8U << 20, 'r');
    std::size_t bytes = 0;
    const double begin = Now();
    do {
      Check(::write(file.get(), chunk.data(), chunk.size()) == static_cast<ssize_t>(chunk.size()), "cannot write");
      Check(::fdatasync(file.get()) == 0, "cannot sync");
      bytes += chunk.size();
    } while (Now() - begin < seconds);
    const double rate = static_cast<double>(bytes) / kRecordBytes / (Now() - begin);
    Check(::ftruncate(file.get(), 0) == 0 && ::lseek(file.get(), 0, SEEK_SET) == 0, "cannot empty the file");
    return rate;
  }
  ControlStore& Embedded() {
    if (!embedded) embedded.emplace("embedded:" + folder.path() + "/store");
    return *embedded;
  }
  double StorageUs(double seconds) {
    if (storage == nullptr) {
      manta::control::EmbeddedOptions options;
      options.folder = folder.path() + "/alone";
      auto opened = manta::control::EmbeddedStorage::Open(*loop, options);
      if (!opened.ok()) Fail(opened.status().message());
      storage = std::move(*opened);
    }
    return MedianUs(seconds, [&] {
      manta::control::Batch batch;
      batch.writes.push_back({Table::kKeyValue, KeyOf(next++), std::string(kValueBytes, 'v')});
      bool done = false;
      storage->Apply(std::move(batch), [&](const Result<std::uint64_t>& result) {
        if (!result.ok()) Fail(result.status().message());
        done = true;
      });
      while (!done) loop->RunOnce(-1);
    });
  }
  double LineagePerSecond(double seconds) {
    ControlStore& store = Embedded();
    int in_flight = 0;
    std::uint64_t acknowledged = 0;
    const double begin = Now();
    const std::string records(kBatchRecords * kRecordBytes, 'l');
    while (Now() - begin < seconds || in_flight > 0) {
      while (in_flight < kBatchesInFlight && Now() - begin < seconds) {
        ++in_flight;
        store.client().Put(Table::kLineage, KeyOf(next++), records, [&](const Result<ControlWritten>& result) {
          if (!result.ok()) Fail(result.status().message());
          --in_flight;
          acknowledged += kBatchRecords;
        });
      }
      if (in_flight > 0) store.loop().RunOnce(-1);
    }
    return static_cast<double>(acknowledged) / (Now() - begin);
  }

  // ---- Redis ----
  Child redis;
  std::string unix_address;
  std::string tcp_address;
  Child echo;
  Fd echo_socket;
  Fd plain[2];  // straight to Redis: Unix, TCP
  std::optional<ControlStore> over[2];

  void StartRedis() {
    if (!unix_address.empty()) return;
    if (std::system("redis-server --version >/dev/null 2>&1") != 0) Skip("redis-server is not installed");
    const std::string socket = folder.path() + "/redis.sock";
    // A port that was free a moment ago.
    int port = 0;
    {
      const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof address;
      Check(::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), size) == 0, "no port");
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size);
      port = ntohs(address.sin_port);
    }
    redis = Child({"redis-server", "--dir", folder.path(), "--save", "", "--logfile", "/dev/null", "--bind",
                   "127.0.0.1", "--port", std::to_string(port), "--unixsocket", socket, "--unixsocketperm", "700",
                   "--requirepass", kPassword});
    unix_address = "unix:" + socket;
    tcp_address = "127.0.0.1:" + std::to_string(port);
    for (int i = 0; i < 2; ++i) {
      const auto address = manta::control::ResolveRedis(i == 0 ? unix_address : tcp_address);
      if (!address.ok()) Fail(address.status().message());
      plain[i].Reset(::socket(address.value().address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const auto* to = reinterpret_cast<const sockaddr*>(&address.value().address);
      int attempts = 0;
      while (::connect(plain[i].get(), to, address.value().size) != 0) {
        if (++attempts > 500) Fail("Redis does not start");
        SleepMs(10);
      }
      const int on = 1;
      ::setsockopt(plain[i].get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      std::string auth;
      manta::control::AppendCommand(&auth, {"AUTH", kPassword});
      Send(plain[i].get(), auth);
      Receive(plain[i].get(), 5);
    }
    auto [ours, theirs] = TcpPair();
    echo = Child({"/proc/self/exe", "--serve-control", "echo:"}, theirs.get());
    echo_socket = std::move(ours);
  }
  // A bare round trip of such sizes to another process, and a bare request to Redis; one after the other, p50 of the
  // sum.
  double BareUs(double seconds, int transport, bool get) {
    StartRedis();
    const std::string request(kKeyBytes + (get ? 0 : kValueBytes) + 64, 'q');
    const std::size_t reply = get ? kReplyBytes + kValueBytes : kReplyBytes;
    const std::string value(kValueBytes, 'v');
    std::string header(16, '\0');
    const std::uint64_t sizes[2] = {request.size(), reply};
    std::memcpy(header.data(), sizes, sizeof sizes);
    const std::string key = KeyOf(1);
    return MedianUs(seconds, [&] {
      Send(echo_socket.get(), header + request);
      Receive(echo_socket.get(), reply);
      std::string command;
      if (get) {
        manta::control::AppendCommand(&command, {"GET", key});
      } else {
        manta::control::AppendCommand(&command, {"SET", key, value});
      }
      Send(plain[transport].get(), command);
      Receive(plain[transport].get(), get && has_value ? 6 + kValueBytes + 2 : 5);
      if (!get) has_value = true;
    });
  }
  bool has_value = false;
  ControlStore& Over(int transport) {
    StartRedis();
    if (!over[transport]) {
      // Each in a part of the server of its own: the second to open the same would take it from the first.
      over[transport].emplace("redis:" + std::to_string(transport) + ":" +
                              (transport == 0 ? unix_address : tcp_address));
    }
    return *over[transport];
  }
};

[[noreturn]] void ServeEcho() {
  std::string buffer(1U << 20, '\0');
  for (;;) {
    std::uint64_t sizes[2] = {};
    if (::recv(3, sizes, sizeof sizes, MSG_WAITALL) != sizeof sizes) ::_exit(0);
    if (::recv(3, buffer.data(), sizes[0], MSG_WAITALL) != static_cast<ssize_t>(sizes[0])) ::_exit(0);
    if (::send(3, buffer.data(), sizes[1], MSG_NOSIGNAL) < 0) ::_exit(0);
  }
}

}  // namespace

int ServeControl(const std::string& storage) {
  const std::size_t colon = storage.find(':');
  const std::string kind = storage.substr(0, colon);
  if (kind == "echo") ServeEcho();
  ::fcntl(3, F_SETFL, O_NONBLOCK);
  ::fcntl(3, F_SETFD, FD_CLOEXEC);
  std::unique_ptr<Loop> loop = std::move(*Loop::Create());
  std::vector<std::unique_ptr<manta::control::Storage>> shards;
  if (kind == "embedded") {
    manta::control::EmbeddedOptions options;
    options.folder = storage.substr(colon + 1);
    auto opened = manta::control::EmbeddedStorage::Open(*loop, options);
    if (!opened.ok()) Fail(opened.status().message());
    shards.push_back(std::move(*opened));
  } else {
    const std::size_t second = storage.find(':', colon + 1);
    manta::control::RedisOptions options;
    options.prefix = "bench" + storage.substr(colon + 1, second - colon);
    options.address = storage.substr(second + 1);
    options.password = kPassword;
    auto opened = manta::control::RedisStorage::Open(*loop, options);
    if (!opened.ok()) Fail(opened.status().message());
    shards.push_back(std::move(*opened));
  }
  manta::control::Tables tables(*loop, std::move(shards));
  std::optional<Status> opened;
  tables.Open([&](const Status& status) { opened = status; });
  while (!opened) loop->RunOnce(-1);
  if (!opened->ok()) Fail(opened->message());
  manta::control::Server server(*loop, tables);
  if (const Status status = server.Add(manta::wire::Stream(Fd(3))); !status.ok()) Fail(status.message());
  while (server.peers() > 0) loop->RunOnce(-1);
  return 0;
}

void AddControl(Suite& suite) {
  auto state = std::make_shared<std::unique_ptr<State>>();
  const auto get = [state]() -> State& {
    if (*state == nullptr) *state = std::make_unique<State>();
    return **state;
  };
  const Baseline sync{"append and fdatasync, the same bytes", [get] { return get().AppendAndSyncUs(0.25); }};
  const auto row = [&](const std::string& name, const std::string& unit, Baseline baseline,
                       std::function<double(double)> run) {
    suite.Add({.metrics = {{name, unit, std::move(baseline)}}, .cluster = Cluster::kDown, .run = [run](double seconds) {
                 return std::vector<double>{run(seconds)};
               }});
  };
  row("control_embedded_storage_write", "us", sync, [get](double seconds) { return get().StorageUs(seconds); });
  row("control_embedded_write", "us", sync, [get](double seconds) {
    State& all = get();
    ControlStore& store = all.Embedded();
    return MedianUs(seconds, [&] { store.Put(Table::kKeyValue, KeyOf(all.next++), std::string(kValueBytes, 'v')); });
  });
  row("control_embedded_lineage_records", "/s",
      {"append, fdatasync every 8 MB", [get] { return get().AppendRecords(0.25); }},
      [get](double seconds) { return get().LineagePerSecond(seconds); });
  for (int transport = 0; transport < 2; ++transport) {
    const std::string over = transport == 0 ? "_unix" : "_tcp";
    row("control_redis_put" + over, "us",
        {"bare round trip + bare Redis SET", [get, transport] { return get().BareUs(0.25, transport, false); }},
        [get, transport](double seconds) {
          State& all = get();
          ControlStore& store = all.Over(transport);
          return MedianUs(seconds, [&] { store.Put(Table::kKeyValue, KeyOf(1), std::string(kValueBytes, 'v')); });
        });
    row("control_redis_get" + over, "us",
        {"bare round trip + bare Redis GET", [get, transport] { return get().BareUs(0.25, transport, true); }},
        [get, transport](double seconds) {
          State& all = get();
          ControlStore& store = all.Over(transport);
          store.Put(Table::kKeyValue, KeyOf(1), std::string(kValueBytes, 'v'));
          return MedianUs(seconds, [&] { store.Get(Table::kKeyValue, KeyOf(1), kValueBytes); });
        });
  }
}

}  // namespace bench
