// manta-bench-links: what the closed door costs. Ping-pong and bulk over loopback: bare TCP, a link with the
// token's handshake, TLS by OpenSSL, and TLS with the records of bulk transfers (wire/tls/records.h); and how long each
// takes to open. Two threads, one on each side; medians of several rounds that take turns, so that all see the same
// load.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "wire/authority.h"
#include "wire/listener.h"
#include "wire/scratch_folder.h"

namespace {

using namespace manta;        // NOLINT(google-build-using-namespace)
using namespace manta::wire;  // NOLINT(google-build-using-namespace)

constexpr int kRounds = 5;
constexpr int kPings = 4000;
constexpr std::size_t kPingBytes = 64;
constexpr std::size_t kBulk = 1U << 30;
constexpr std::size_t kPiece = 1U << 20;
constexpr int kOpens = 100;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "manta-bench-links: %s\n", status.message().c_str());
  std::exit(1);
}

struct Ends {
  Stream near;
  Stream far;
};

Ends Bare() {
  const SocketAddress any = Resolve(Address{"127.0.0.1", 0}).value().front();
  const base::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  base::Fd near(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), any.get(), any.size) != 0 || listen(listener.get(), 1) != 0) std::abort();
  const SocketAddress where = LocalOf(listener.get());
  if (connect(near.get(), where.get(), where.size) != 0) std::abort();
  base::Fd far(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  SetSocketOptions(near.get());
  SetSocketOptions(far.get());
  return {Stream(std::move(near)), Stream(std::move(far))};
}

struct Secure {
  std::shared_ptr<Secrets> secrets;
  std::unique_ptr<BlockingListener> listener;
  bool tls = false;

  Ends Open() const {
    Ends ends;
    std::thread dialler([&] {
      DialOptions options;
      options.secrets = secrets;
      options.always_tls = tls;
      Result<Link> link = DialAndWait(listener->address(), options);
      Check(link.status());
      ends.near = std::move(link->stream);
    });
    Result<Link> link = listener->Accept(5'000'000);
    Check(link.status());
    dialler.join();
    ends.far = std::move(link->stream);
    return ends;
  }
};

// Microseconds of a round trip, median.
double PingPong(Ends& ends) {
  std::vector<double> times;
  std::thread echo([&] {
    std::vector<std::byte> buffer(kPingBytes);
    for (int i = 0; i < kPings; ++i) {
      Check(ends.far.ReadAll(buffer));
      Check(ends.far.WriteAll(buffer));
    }
  });
  std::vector<std::byte> buffer(kPingBytes);
  for (int i = 0; i < kPings; ++i) {
    const std::int64_t start = base::NowMicros();
    Check(ends.near.WriteAll(buffer));
    Check(ends.near.ReadAll(buffer));
    times.push_back(static_cast<double>(base::NowMicros() - start));
  }
  echo.join();
  std::nth_element(times.begin(), times.begin() + kPings / 2, times.end());
  return times[kPings / 2];
}

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct BulkRates {
  double wall = 0;  // gigabytes a second
  double cpu = 0;   // the same by the processor time of the busier side: what an idle machine would give
};

// From warm memory into warm memory.
BulkRates Bulk(Ends& ends) {
  std::vector<std::byte> from(16 * kPiece, std::byte{1});
  std::vector<std::byte> into(16 * kPiece, std::byte{2});
  const std::int64_t start = base::NowMicros();
  double sending = 0;
  std::thread sender([&] {
    const double begun = ThreadSeconds();
    for (std::size_t sent = 0; sent < kBulk; sent += kPiece) {
      Check(ends.near.WriteAll(std::span(from).subspan(sent % from.size(), kPiece)));
    }
    sending = ThreadSeconds() - begun;
  });
  const double begun = ThreadSeconds();
  for (std::size_t got = 0; got < kBulk; got += kPiece) {
    Check(ends.far.ReadAll(std::span(into).subspan(got % into.size(), kPiece)));
  }
  const double seconds = static_cast<double>(base::NowMicros() - start) / 1e6;
  const double receiving = ThreadSeconds() - begun;
  sender.join();
  const double gigabytes = static_cast<double>(kBulk) / 1e9;
  return {gigabytes / seconds, gigabytes / std::max(sending, receiving)};
}

template <typename Open>
double OpenMicros(const Open& open) {
  const std::int64_t start = base::NowMicros();
  for (int i = 0; i < kOpens; ++i) open();
  return static_cast<double>(base::NowMicros() - start) / kOpens;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  const ScratchFolder scratch;
  Secure token;
  Result<std::shared_ptr<Secrets>> secrets = Secrets::OpenOrCreate(scratch / "manta");
  Check(secrets.status());
  token.secrets = *secrets;
  ListenOptions options;
  options.secrets = token.secrets;
  Result<std::unique_ptr<BlockingListener>> plain_listener = BlockingListener::Create(options);
  Check(plain_listener.status());
  token.listener = std::move(*plain_listener);
  Secure tls;
  tls.tls = true;
  tls.secrets = token.secrets;
  options.tls = true;
  const std::int64_t before = base::NowMicros();
  Check(LoadTls().status());
  std::printf("loading OpenSSL: %.1f ms\n", static_cast<double>(base::NowMicros() - before) / 1e3);
  Result<std::unique_ptr<BlockingListener>> tls_listener = BlockingListener::Create(options);
  Check(tls_listener.status());
  tls.listener = std::move(*tls_listener);

  struct Row {
    const char* name;
    std::function<Ends()> open;
    std::vector<double> ping, bulk, cpu, opened;
  };
  std::vector<Row> rows;
  rows.push_back({"bare TCP", [] { return Bare(); }, {}, {}, {}, {}});
  rows.push_back({"token", [&] { return token.Open(); }, {}, {}, {}, {}});
  rows.push_back({"TLS", [&] { return tls.Open(); }, {}, {}, {}, {}});
  const auto bulk = [&] {
    Ends ends = tls.Open();
    ends.near.ExpectBulk();
    ends.far.ExpectBulk();
    return ends;
  };
  rows.push_back({"TLS, bulk", bulk, {}, {}, {}, {}});
  for (int round = 0; round < kRounds; ++round) {
    for (Row& row : rows) {
      Ends ends = row.open();
      row.ping.push_back(PingPong(ends));
      const BulkRates rates = Bulk(ends);
      row.bulk.push_back(rates.wall);
      row.cpu.push_back(rates.cpu);
      row.opened.push_back(OpenMicros(row.open));
    }
  }
  std::printf("%-10s %10s %14s %12s %9s %20s %9s\n", "", "open us", "ping-pong us", "bulk GB/s", "of bare",
              "GB per cpu second", "of bare");
  for (Row& row : rows) {
    std::printf("%-10s %10.0f %14.1f %12.2f %8.0f%% %20.2f %8.0f%%\n", row.name, Median(row.opened), Median(row.ping),
                Median(row.bulk), 100 * Median(row.bulk) / Median(rows[0].bulk), Median(row.cpu),
                100 * Median(row.cpu) / Median(rows[0].cpu));
  }
  return 0;
}
