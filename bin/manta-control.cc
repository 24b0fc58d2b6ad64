// manta-control, the head of a cluster: tables that every other process comes back from, who is a member, and where
// tasks go that find no room on their own node.
//
// With --chain its tables are in chains of members, each a process of this program with --member (doc/replication.md);
// with --etcd it waits while another one is the front of these, and takes over when that one is gone.
//
// With --listen it serves the cluster at a TCP port, behind the token (and TLS, if it is not loopback); otherwise it is
// a store for processes of this user on this machine only (an abstract Unix socket, peers checked by the kernel).
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/chain_host.h"
#include "control/chained_storage.h"
#include "control/embedded_storage.h"
#include "control/etcd_keeper.h"
#include "control/head.h"
#include "control/redis_storage.h"
#include "control/scheduler.h"
#include "control/server.h"
#include "control/tables.h"
#include "parse.h"
#include "types/resources.h"
#include "wire/address.h"
#include "wire/authority.h"
#include "wire/listener.h"
#include "wire/local_listener.h"

namespace {

using manta::Cat;
using manta::Code;
using manta::Result;
using manta::Status;

constexpr std::int64_t kLastWordsUs = 200'000;
constexpr std::int64_t kStandUs = 600'000'000;  // that nodes wait for another head, or for etcd
constexpr std::uint64_t kRedisLog = 100'000;    // batches that a chain member keeps to feed others

struct Options {
  std::string address;
  std::string listen;
  std::string secrets;
  bool tls = false;
  std::string folder;
  std::size_t shards = 1;
  std::uint64_t memory_mb = 0;  // 0: EmbeddedOptions' own
  std::vector<std::string> redis;
  std::string redis_password_file;
  std::string redis_prefix = "manta:";
  double redis_patience = 10;  // seconds
  bool member = false;
  std::vector<std::string> chains;  // addresses with commas between
  double chain_patience = 10;       // seconds
  std::vector<std::string> etcd;    // servers
  std::string etcd_prefix = "manta";
  int etcd_term = 4;  // seconds
  bool scheduler = false;
  std::string join;
  std::vector<std::string> job_quota;
  int ready_fd = -1;
};

int Complain(const Status& status) {
  manta::base::LogWarning("%s", status.message().c_str());
  return 1;
}

// Secrets come in files that nobody else can read, never in argv.
Result<std::string> ReadPassword(const std::string& path) {
  const manta::base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return Status(Code::kInvalid, Cat("cannot read the password in ", path));
  }
  if ((info.st_mode & 077) != 0) {
    return Status(Code::kInvalid, Cat("others may read the password in ", path, ": run `chmod 600 ", path, "`"));
  }
  std::string text(4096, '\0');
  const ssize_t count = read(file.get(), text.data(), text.size());
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) return Status(Code::kInvalid, Cat("the password in ", path, " is empty"));
  return text;
}

Status MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return {};
  const Status status = manta::control::DiskError(Cat("cannot make folder ", folder), errno);
  const std::string parent = folder.substr(0, std::max<std::size_t>(folder.find_last_of('/'), 1));
  return Status(status.code(),
                Cat(status.message(), errno == ENOENT ? Cat("; make ", parent, " first, or name another with --folder")
                                                      : "; name one with --folder that this user may make"));
}

// What ends the process: a signal, or that it is not the front of its chains any more.
struct Ending {
  bool stopping = false;
  Status lost;
  std::vector<std::shared_ptr<manta::control::ChainKeeper>> keepers;  // of the seats that this process has
};

// Members on other machines are reached with TLS, for which this process needs a certificate also if it serves only its
// own. Told at once: later it would look as if they did not answer.
Status PrepareTls(manta::wire::Secrets& secrets, const std::vector<std::string>& members) {
  bool beyond = false;
  for (const std::string& member : members) {
    if (member.starts_with("@")) continue;
    const Result<manta::wire::Address> address = manta::wire::ParseAddress(member);
    if (!address.ok()) return address.status();
    const Result<std::vector<manta::wire::SocketAddress>> found = Resolve(address.value());
    if (!found.ok()) return found.status();
    beyond = beyond || !found.value().front().loopback();
  }
  if (!beyond) return {};
  if (manta::wire::HasAuthority(secrets.folder())) {
    if (Status made = EnsureCertificate(secrets, {}); !made.ok()) return made;
  }
  return secrets.Member().status();
}

Result<std::vector<std::unique_ptr<manta::control::Storage>>> OpenShards(manta::base::Loop& loop,
                                                                         const Options& options, Ending& ending) {
  std::vector<std::unique_ptr<manta::control::Storage>> shards;
  if (options.redis.empty()) {
    // The folder of the shards is made here; each shard's own by the storage.
    if (Status made = MakeFolder(options.folder); !made.ok()) return made;
    for (std::size_t i = 0; i < options.chains.size(); ++i) {
      manta::control::ChainedOptions chained;
      chained.folder = Cat(options.folder, "/chain-", i);
      chained.addresses = CLI::detail::split(options.chains[i], ',');
      chained.patience_us = static_cast<std::int64_t>(options.chain_patience * 1e6);
      if (options.chains[i].find(':') != std::string::npos) {
        Result<std::shared_ptr<manta::wire::Secrets>> secrets = manta::wire::Secrets::OpenOrCreate(options.secrets);
        if (!secrets.ok()) return secrets.status();
        chained.secrets = std::move(*secrets);
        if (Status ready = PrepareTls(*chained.secrets, chained.addresses); !ready.ok()) return ready;
      }
      chained.on_stop = [&ending](const Status& why) { ending.lost = why; };
      if (!options.etcd.empty()) {
        manta::control::EtcdOptions etcd;
        etcd.servers = options.etcd;
        etcd.prefix = Cat(options.etcd_prefix, "/chain-", i);
        etcd.name = options.listen.empty() ? options.address : options.listen;
        etcd.term_us = options.etcd_term * 1'000'000LL;
        etcd.give_up = [&ending] { return ending.stopping; };
        etcd.note = [](const std::string& text) { manta::base::LogWarning("%s", text.c_str()); };
        auto keeper = manta::control::EtcdKeeper::Create(loop, std::move(etcd));
        if (!keeper.ok()) return keeper.status();
        chained.keeper = std::move(*keeper);
        ending.keepers.push_back(chained.keeper);
      }
      auto shard = manta::control::ChainedStorage::Open(loop, std::move(chained));
      if (!shard.ok()) return shard.status();
      shards.push_back(std::move(*shard));
    }
    if (!shards.empty()) return shards;
    for (std::size_t i = 0; i < options.shards; ++i) {
      manta::control::EmbeddedOptions embedded;
      embedded.folder = Cat(options.folder, "/shard-", i);
      if (options.memory_mb > 0) {
        embedded.memory_bytes = (options.memory_mb << 20) / options.shards;
        embedded.checkpoint_bytes = embedded.memory_bytes / 8;
        embedded.segment_bytes = embedded.checkpoint_bytes;
      }
      auto shard = manta::control::EmbeddedStorage::Open(loop, embedded);
      if (!shard.ok()) return shard.status();
      shards.push_back(std::move(*shard));
    }
    return shards;
  }
  manta::control::RedisOptions redis;
  if (!options.redis_password_file.empty()) {
    const Result<std::string> password = ReadPassword(options.redis_password_file);
    if (!password.ok()) return password.status();
    redis.password = password.value();
  }
  redis.patience_us = static_cast<std::int64_t>(options.redis_patience * 1e6);
  for (std::size_t i = 0; i < options.redis.size(); ++i) {
    redis.address = options.redis[i];
    redis.prefix = Cat(options.redis_prefix, i, ":");
    auto shard = manta::control::RedisStorage::Open(loop, redis);
    if (!shard.ok()) return shard.status();
    shards.push_back(std::move(*shard));
  }
  return shards;
}

void SayReady(const Options& options, const std::string& address) {
  if (options.ready_fd < 0) return;
  const std::string line = address + "\n";
  if (write(options.ready_fd, line.data(), line.size()) < 0) perror("manta-control: --ready-fd");
  if (options.ready_fd > 2) close(options.ready_fd);
}

// A member of a chain: keeps a copy, knows no tables.
int RunMember(manta::base::Loop& loop, const Options& options, const bool& stopping) {
  manta::control::ChainHostOptions settings;
  settings.folder = options.folder;
  if (!options.redis.empty()) {
    manta::control::RedisOptions redis;
    redis.address = options.redis[0];
    redis.keep_log_entries = kRedisLog;
    redis.patience_us = static_cast<std::int64_t>(options.redis_patience * 1e6);
    if (!options.redis_password_file.empty()) {
      const Result<std::string> password = ReadPassword(options.redis_password_file);
      if (!password.ok()) return Complain(password.status());
      redis.password = password.value();
    }
    const auto numbered = [redis, prefix = options.redis_prefix](std::uint64_t copy) {
      manta::control::RedisOptions one = redis;
      one.prefix = Cat(prefix, "copy-", copy, ":");
      return one;
    };
    settings.open = [&loop, numbered](std::uint64_t copy) -> Result<std::unique_ptr<manta::control::Storage>> {
      auto opened = manta::control::RedisStorage::Open(loop, numbered(copy));
      if (!opened.ok()) return opened.status();
      return std::unique_ptr<manta::control::Storage>(std::move(*opened));
    };
    settings.drop = [numbered](std::uint64_t copy) {
      if (const Status erased = manta::control::RedisStorage::Erase(numbered(copy)); !erased.ok()) Complain(erased);
    };
  }
  if (!options.listen.empty()) {
    Result<std::shared_ptr<manta::wire::Secrets>> secrets = manta::wire::Secrets::OpenOrCreate(options.secrets);
    if (!secrets.ok()) return Complain(secrets.status());
    settings.secrets = std::move(*secrets);
  }
  const std::shared_ptr<manta::wire::Secrets> secrets = settings.secrets;
  auto host = manta::control::ChainHost::Open(loop, std::move(settings));
  if (!host.ok()) return Complain(host.status());
  std::optional<Status> failure;
  (*host)->OnFailure([&](const Status& why) { failure = why; });
  const auto add = [&host](manta::wire::Stream stream) {
    if (const Status added = (*host)->Add(std::move(stream)); !added.ok()) Complain(added);
  };
  std::unique_ptr<manta::wire::LocalListener> local;
  std::unique_ptr<manta::wire::Listener> listener;
  std::string address = options.address;
  if (options.listen.empty()) {
    auto made = manta::wire::LocalListener::Listen(
        loop, options.address, "manta-control",
        [&add](manta::base::Fd socket) { add(manta::wire::Stream(std::move(socket))); });
    if (!made.ok()) return Complain(made.status());
    local = std::move(*made);
  } else {
    manta::wire::ListenOptions listen;
    listen.address = options.listen;
    listen.secrets = secrets;
    listen.roles = RoleBit(manta::wire::LinkRole::kControl);
    listen.tls = options.tls;
    auto made = manta::wire::Listener::Create(
        loop, std::move(listen), [&add](manta::wire::Link link) { add(std::move(link.stream)); },
        [](const std::string& peer, const Status& what) {
          manta::base::LogWarning("%s: %s", peer.c_str(), what.message().c_str());
        });
    if (!made.ok()) return Complain(made.status());
    listener = std::move(*made);
    address = listener->address();
  }
  SayReady(options, address);
  while (!stopping && !failure) loop.RunOnce(-1);
  return failure ? Complain(*failure) : 0;
}

// A global scheduler beside the head's own: knows what the head tells it, keeps nothing.
int RunScheduler(manta::base::Loop& loop, const Options& options, const bool& stopping) {
  Result<std::shared_ptr<manta::wire::Secrets>> secrets = manta::wire::Secrets::Open(options.secrets);
  if (!secrets.ok()) return Complain(secrets.status());
  manta::control::Scheduler* scheduler = nullptr;
  manta::wire::ListenOptions listen;
  listen.address = options.listen.empty() ? "127.0.0.1:0" : options.listen;
  listen.secrets = *secrets;
  listen.roles = RoleBit(manta::wire::LinkRole::kNode);
  listen.tls = options.tls;
  auto listener = manta::wire::Listener::Create(
      loop, std::move(listen),
      [&](manta::wire::Link link) {
        if (scheduler != nullptr) scheduler->Add(std::move(link));
      },
      [](const std::string& peer, const Status& what) {
        if (!what.ok()) manta::base::LogWarning("%s: %s", peer.c_str(), what.message().c_str());
      });
  if (!listener.ok()) return Complain(listener.status());
  manta::control::Scheduler one(loop, options.join, *secrets, (*listener)->address());
  scheduler = &one;
  std::optional<Status> ended;
  one.OnJoined([&] { SayReady(options, (*listener)->address()); });
  one.OnEnd([&](const Status& why) { ended = why; });
  one.Start();
  while (!stopping && !ended) loop.RunOnce(-1);
  scheduler = nullptr;
  return ended && !ended->ok() ? Complain(*ended) : 0;
}

// Empty, or what is wrong.
std::string ParseQuota(const std::vector<std::string>& entries, manta::Resources* out) {
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    char* end = nullptr;
    const double amount = equals == std::string::npos ? 0 : std::strtod(entry.c_str() + equals + 1, &end);
    if (equals == 0 || equals == std::string::npos || *end != '\0' || !(amount > 0) || amount > 1e9) {
      return Cat("--job-quota ", entry, ": give NAME=AMOUNT, the amount above 0");
    }
    out->Set(entry.substr(0, equals), std::llround(amount * manta::kUnit));
  }
  return {};
}

// Takes the port; nobody is let in before Listener::Begin. So a bad address is told at once, not after the tables were
// read, and nodes that look for a head that is just starting hear that nobody is there yet.
Result<std::unique_ptr<manta::wire::Listener>> TakePort(manta::base::Loop& loop, const Options& options,
                                                        std::shared_ptr<manta::wire::Secrets> secrets,
                                                        manta::wire::Listener::OnLink on_link) {
  manta::wire::ListenOptions listen;
  listen.address = options.listen;
  listen.secrets = std::move(secrets);
  listen.roles = RoleBit(manta::wire::LinkRole::kNode) | RoleBit(manta::wire::LinkRole::kControl) |
                 RoleBit(manta::wire::LinkRole::kTool);
  listen.tls = options.tls;
  listen.accept_joins = options.tls;
  listen.later = true;
  return manta::wire::Listener::Create(
      loop, std::move(listen), std::move(on_link), [](const std::string& peer, const Status& what) {
        manta::base::LogWarning("%s: %s", peer.c_str(), what.ok() ? "joined" : what.message().c_str());
      });
}

int Run(const Options& options) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a limit of the file size is a failed write, like a full disk
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  const manta::base::Fd signals(signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));

  auto loop = manta::base::Loop::Create();
  if (!loop.ok()) return Complain(loop.status());
  Ending ending;
  bool& stopping = ending.stopping;
  Status status = (*loop)->Watch(signals.get(), EPOLLIN, [&](std::uint32_t) {
    signalfd_siginfo info{};
    while (read(signals.get(), &info, sizeof info) == sizeof info) stopping = true;
  });
  if (!status.ok()) return Complain(status);

  if (options.member) return RunMember(**loop, options, stopping);
  if (options.scheduler) return RunScheduler(**loop, options, stopping);
  manta::Resources job_quota;
  if (const std::string wrong = ParseQuota(options.job_quota, &job_quota); !wrong.empty()) {
    return Complain(Status(Code::kInvalid, wrong));
  }
  manta::wire::Listener::OnLink on_link;  // set when there is somebody to hand it to
  std::shared_ptr<manta::wire::Secrets> secrets;
  std::unique_ptr<manta::wire::Listener> listener;
  if (!options.listen.empty()) {
    Result<std::shared_ptr<manta::wire::Secrets>> found = manta::wire::Secrets::OpenOrCreate(options.secrets);
    if (!found.ok()) return Complain(found.status());
    secrets = std::move(*found);
    auto made = TakePort(**loop, options, secrets, [&](manta::wire::Link link) { on_link(std::move(link)); });
    if (!made.ok()) return Complain(made.status());
    listener = std::move(*made);
  }
  auto shards = OpenShards(**loop, options, ending);
  if (stopping) return 0;
  if (!shards.ok()) return Complain(shards.status());
  manta::control::Tables tables(**loop, std::move(*shards));
  std::optional<Status> opened;
  tables.Open([&](const Status& result) { opened = result; });
  while (!opened && !stopping && ending.lost.ok()) (*loop)->RunOnce(-1);
  if (stopping) return 0;
  if (!ending.lost.ok()) return Complain(ending.lost);
  if (!opened->ok()) return Complain(*opened);

  manta::control::Server server(**loop, tables);
  manta::control::HeadOptions settings;
  settings.job_quota = job_quota;
  if (!ending.keepers.empty()) {
    settings.wait_us = kStandUs;
    settings.until_us = [&ending] {
      std::int64_t until = std::numeric_limits<std::int64_t>::max();
      for (const auto& keeper : ending.keepers) until = std::min(until, keeper->UntilMicros());
      return until;
    };
  }
  manta::control::Head head(**loop, tables, std::move(settings));
  std::unique_ptr<manta::wire::LocalListener> local;
  std::string address = options.address;
  if (!listener) {
    auto made =
        manta::wire::LocalListener::Listen(**loop, options.address, "manta-control", [&](manta::base::Fd socket) {
          if (const Status added = server.Add(std::move(socket)); !added.ok()) Complain(added);
        });
    if (!made.ok()) return Complain(made.status());
    local = std::move(*made);
  } else {
    opened.reset();
    head.Open([&](const Status& result) { opened = result; });
    while (!opened && !stopping) (*loop)->RunOnce(-1);
    if (stopping) return 0;
    if (!opened->ok()) return Complain(*opened);
    head.OnStop([&] { stopping = true; });
    head.ShareToken(secrets);
    on_link = [&](manta::wire::Link link) {
      if (link.role != manta::wire::LinkRole::kControl) return head.Add(std::move(link));
      if (const Status added = server.Add(std::move(link.stream)); !added.ok()) Complain(added);
    };
    manta::base::Failpoint("head.opened");
    if (const Status begun = listener->Begin(); !begun.ok()) return Complain(begun);
    address = listener->address();
  }
  SayReady(options, address);
  while (!stopping && ending.lost.ok()) (*loop)->RunOnce(-1);
  if (!ending.lost.ok()) return Complain(ending.lost);
  // The last words to nodes and tools.
  const std::int64_t until = manta::base::NowMicros() + kLastWordsUs;
  while (!head.AllSent() && manta::base::NowMicros() < until) (*loop)->RunOnce(1000);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  manta::base::SetUpLog({.program = "manta-control"});
  Options options;
  options.address = Cat("@manta-control-", getuid(), "-", getpid());
  const char* home = std::getenv("HOME");
  CLI::App app("The head of a Manta cluster.");
  app.add_option("--address", options.address, "where to listen: '@' and a name")->capture_default_str();
  app.add_option("--listen", options.listen, "serve a cluster at this host:port (port 0: any free one)");
  app.add_option("--secrets", options.secrets, "folder of the cluster's token and certificates (default ~/.manta)");
  app.add_flag("--tls", options.tls, "encrypt: needed to listen beyond this machine; makes an authority at first");
  auto* folder = app.add_option("--folder", options.folder,
                                "keep the tables here, in a log and SQLite (default ~/.manta/control)");
  auto* shards =
      app.add_option("--shards", options.shards, "how many, fixed at the first start")->check(CLI::Range(1, 256));
  app.add_option("--memory", options.memory_mb,
                 "MB that the tables in --folder may hold in memory; what is more waits for the disk (default 128)")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--redis", options.redis,
                 "keep them in Redis 7 instead: unix:/path or host:port; repeat for more shards, always in this order")
      ->excludes(shards);
  app.add_option("--redis-password-file", options.redis_password_file, "the password of all these servers; mode 0600");
  app.add_option("--redis-prefix", options.redis_prefix, "of all keys there")->capture_default_str();
  app.add_option("--redis-patience", options.redis_patience, "seconds without an answer, until a request fails")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  auto* member = app.add_flag("--member", options.member, "be a member of a chain: keep one copy of one shard");
  app.add_option(
         "--chain", options.chains,
         "keep them in a chain of members: their addresses, with commas between; repeat for more shards, always "
         "in this order")
      ->excludes(shards)
      ->excludes(member)
      ->excludes("--redis");
  app.add_option("--chain-patience", options.chain_patience, "seconds without an answer, until a request fails")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--etcd", options.etcd,
                 "keep the configuration of the chains there, host:port, instead of in --folder: if this process is "
                 "lost, another one that was started the same way takes over; repeat for more servers")
      ->needs("--chain");
  app.add_option("--etcd-prefix", options.etcd_prefix, "of all keys there: one for each cluster")
      ->capture_default_str();
  app.add_option("--etcd-term", options.etcd_term, "seconds without a sign of life, until another takes over")
      ->check(CLI::Range(2, 600))
      ->capture_default_str();
  auto* scheduler = app.add_flag("--scheduler", options.scheduler,
                                 "be a further global scheduler of the cluster whose head --join names; keeps nothing")
                        ->excludes(member);
  app.add_option("--join", options.join, "the head's host:port")->needs(scheduler);
  app.add_option("--job-quota", options.job_quota,
                 "NAME=AMOUNT that a job may have at a time, on all nodes together (CPU=8); repeat for more")
      ->excludes(scheduler);
  app.add_option("--ready-fd", options.ready_fd, "write the address there once connections are accepted");
  if (const auto wrong = manta::cli::Parse(app, "manta-control", argc, argv)) return *wrong;
  if (!options.redis.empty() && folder->count() > 0 && !options.member) {
    return Complain(Status(Code::kInvalid, "--redis and --folder exclude each other, except for a --member"));
  }
  if (options.scheduler && options.join.empty()) {
    return Complain(Status(Code::kInvalid, "a --scheduler needs --join and the address of its cluster's head"));
  }
  if (options.member && options.redis.size() > 1) {
    return Complain(Status(Code::kInvalid, "a --member keeps one copy: give one --redis"));
  }
  if (!options.scheduler && options.folder.empty() && (options.redis.empty() || options.member)) {
    if (home == nullptr || *home == '\0') {
      return Complain(Status(Code::kInvalid, "there is no HOME: say where to keep the tables with --folder"));
    }
    const std::string parent = std::string(home) + "/.manta";
    if (const Status made = MakeFolder(parent); !made.ok()) return Complain(made);
    options.folder = parent + (options.member ? "/member" : "/control");
  }
  if (options.secrets.empty()) options.secrets = manta::wire::Secrets::DefaultFolder();
  return Run(options);
}
