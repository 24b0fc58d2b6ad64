// Init and Shutdown: how a program gets a cluster and leaves it.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>

#include "api/worker_command.h"
#include "base/clock.h"
#include "base/program.h"
#include "lineage/folder.h"
#include "lineage/recall.h"
#include "manta/manta.h"
#include "owner/owner.h"
#include "store/memory.h"
#include "store/spill.h"
#include "wire/local_cluster.h"
#include "wire/local_connect.h"
#include "wire/secrets.h"
#include "worker/stack.h"
#include "worker/start_hook.h"
#include "worker/worker.h"

extern char** environ;

namespace manta {
namespace {

constexpr std::int64_t kAnswerUs = 20'000'000;  // a daemon that takes longer is not well

// Everything a driver has while it is initialised.
struct Driver {
  pid_t daemon = 0;  // of a private cluster
  std::shared_ptr<owner::DaemonLink> link;
  std::unique_ptr<owner::Owner> owner;
};

std::mutex g_mutex;  // guards g_driver
std::unique_ptr<Driver> g_driver;

void Check(const Status& status) {
  if (status.ok()) return;
  switch (status.code()) {
    case Code::kInvalid:
      throw InvalidError(status.message());
    case Code::kIo:
      throw IoError(status.message());
    case Code::kOutOfMemory:
      throw OutOfMemoryError(status.message());
    default:
      throw UnavailableError(status.message());
  }
}

Status CheckConfig(const Config& config) {
  Resources ignored;
  if (Status s = owner::ToResources(config.cpus, config.gpus, config.resources, &ignored); !s.ok()) {
    return Status(Code::kInvalid, Cat("Init: bad configuration: ", s.message()));
  }
  if (config.gpus != std::floor(config.gpus)) {
    return Status(Code::kInvalid, Cat("Init: a machine has whole GPUs, not ", config.gpus));
  }
  for (const auto& [name, amount] : config.resources) {
    if (name == "CPU" || name == "GPU") {
      return Status(Code::kInvalid,
                    Cat("Init: set Config::", name == "CPU" ? "cpus" : "gpus", " instead of resource '", name, "'"));
    }
    if (name.find_first_of("=\n") != std::string::npos) {
      return Status(Code::kInvalid, Cat("Init: the resource name '", name, "' contains '=' or a line break"));
    }
  }
  for (const auto& [key, value] : config.labels) {
    if (key.empty() || Cat(key, value).find_first_of("=,\n") != std::string::npos) {
      return Status(Code::kInvalid, Cat("Init: the label '", key, "' = '", value,
                                        "' is empty or contains '=', a comma or a line break"));
    }
  }
  for (const auto& [name, amount] : config.quota) {
    if (amount == 0) {
      return Status(Code::kInvalid, Cat("Init: a quota of no ", name, " at all: ask for more than 0, or leave it out"));
    }
  }
  if (Status s = owner::ToResources(0, 0, config.quota, &ignored); !s.ok()) {
    return Status(Code::kInvalid, Cat("Init: bad quota: ", s.message()));
  }
  if (config.store_bytes != 0) {
    if (Status s = store::CheckStoreBytes(config.store_bytes); !s.ok())
      return Status(s.code(), Cat("Init: ", s.message()));
  }
  if (!config.job.empty()) {
    if (Status s = lineage::CheckJobName(config.job); !s.ok()) return Status(s.code(), Cat("Init: ", s.message()));
  } else if (config.resume || config.keep_lineage) {
    return Status(Code::kInvalid,
                  "Init: only a job with a name (Config::job) can be resumed, or have its lineage kept");
  }
  if (!config.spill_folder.empty()) {
    if (Status s = store::SpillFiles::Check(config.spill_folder); !s.ok()) {
      return Status(s.code(), Cat("Init: ", s.message()));
    }
  }
  return {};
}

std::string DaemonPath() {
  if (const char* path = std::getenv("MANTA_DAEMON"); path != nullptr) return path;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&DaemonPath), &info) == 0 || info.dli_fname == nullptr) return "mantad";
  std::string folder = info.dli_fname;
  const std::size_t slash = folder.rfind('/');
  folder = slash == std::string::npos ? "." : folder.substr(0, slash);
  return folder + "/" + MANTA_DAEMON_FROM_LIB;
}

// Starts mantad with its end of a socket pair as descriptor 3.
Result<base::Fd> StartDaemon(const Config& config, pid_t* pid) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status(Code::kIo, Cat("cannot make a socket for the node's daemon: ", std::strerror(errno),
                                 errno == EMFILE ? "; raise `ulimit -n`" : ""));
  }
  base::Fd ours(pair[0]);
  const base::Fd theirs(pair[1]);
  const std::string path = DaemonPath();
  std::vector<std::string> words{path, "--private-fd", "3"};
  const auto add = [&](const std::string& flag, const std::string& value) {
    words.push_back(flag);
    words.push_back(value);
  };
  if (config.cpus > 0 || config.without_cpus) add("--cpus", std::to_string(config.without_cpus ? 0 : config.cpus));
  if (config.gpus > 0) add("--gpus", std::to_string(static_cast<int>(config.gpus)));
  for (const auto& [name, amount] : config.resources) add("--resource", Cat(name, "=", amount));
  for (const auto& [key, value] : config.labels) add("--label", Cat(key, "=", value));
  if (config.store_bytes > 0) add("--store-bytes", std::to_string(config.store_bytes));
  if (!config.spill_folder.empty()) add("--spill", config.spill_folder);
  if (config.spill_bytes > 0) add("--spill-limit", std::to_string(config.spill_bytes));
  if (config.lineage_memory > 0) add("--lineage-memory", std::to_string(config.lineage_memory));
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  const int error = posix_spawn(pid, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Status(Code::kUnavailable, Cat("cannot start the node's daemon '", path, "': ", std::strerror(error),
                                          "; is Manta installed whole? MANTA_DAEMON may name mantad's path"));
  }
  return ours;
}

// The live clusters of this user, by their sockets' names.
std::vector<std::string> LocalClusters() {
  std::vector<std::string> found;
  const std::string mark = Cat("@manta-", getuid(), "-");
  std::ifstream sockets("/proc/net/unix");
  std::string line;
  while (std::getline(sockets, line)) {
    const std::size_t at = line.find(mark);
    if (at == std::string::npos || line.find(" 00010000 ") == std::string::npos) continue;  // listening ones
    // Another user may have bound such a name: a socket that is not this user's is no cluster of this user.
    const std::string address = line.substr(at);
    if (const Result<base::Fd> ours = wire::ConnectToLocal(address); ours.ok()) found.push_back(address);
  }
  return found;
}

// Of the node on this machine that belongs to a cluster which `manta start` or `manta cluster` started here; with
// `head` only if that is its head's address. Empty: there is none that lives.
std::string LocalNode(const std::string& head) {
  const Result<wire::LocalCluster> cluster = wire::LocalCluster::Read(wire::Secrets::DefaultFolder());
  if (!cluster.ok() || (!head.empty() && cluster.value().head != head)) return {};
  return cluster.value().LivingNode();
}

// Where Init shall connect to; empty: it starts a cluster of its own.
std::string FindAddress(const Config& config) {
  if (!config.address.empty()) return config.address;
  if (const char* from = std::getenv("MANTA_ADDRESS"); from != nullptr && *from != '\0') return from;
  // Who says how large its cluster is to be means its own.
  const bool own = config.cpus > 0 || config.without_cpus || config.gpus > 0 || !config.resources.empty() ||
                   !config.labels.empty() || config.store_bytes > 0 || !config.spill_folder.empty() ||
                   config.spill_bytes > 0 || config.lineage_memory > 0;
  return own ? std::string() : LocalNode("");
}

Result<base::Fd> Connect(std::string address) {
  if (address == "auto") {
    if (const std::string node = LocalNode(""); !node.empty()) address = node;
  } else if (address.find(':') != std::string::npos && address[0] != '@') {
    const std::string node = LocalNode(address);
    if (node.empty()) {
      return Status(Code::kUnavailable, Cat("Init: no node of the cluster at ", address,
                                            " runs on this machine; `manta start --join ", address, "` starts one"));
    }
    address = node;
  }
  if (address == "auto") {
    const std::vector<std::string> clusters = LocalClusters();
    if (clusters.size() != 1) {
      return Status(
          Code::kUnavailable,
          clusters.empty()
              ? std::string("Init: no cluster runs on this machine; start one, or leave the address empty")
              : Cat("Init: ", clusters.size(), " clusters run on this machine; name one, as in ", clusters[0]));
    }
    address = clusters[0];
  }
  Result<base::Fd> fd = wire::ConnectToLocal(address);
  if (fd.ok()) return fd;
  if (fd.status().code() != Code::kUnavailable) return Status(fd.status().code(), Cat("Init: ", fd.status().message()));
  return Status(Code::kUnavailable, Cat("Init: no cluster answers at ", address, " (", fd.status().message(),
                                        "); `manta status` shows those that live"));
}

void Print(const wire::LogLines& lines) {
  for (const wire::LogLine& line : lines.lines) {
    std::FILE* to = line.error_stream ? stderr : stdout;
    const std::string text =
        Cat("(", line.label.empty() ? "worker" : line.label, " pid=", line.pid, ") ", line.text, "\n");
    std::fwrite(text.data(), 1, text.size(), to);
    std::fflush(to);
  }
}

std::vector<std::string> OwnArguments() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string word;
  while (std::getline(file, word, '\0')) words.push_back(word);
  return words;
}

Status Start(const Config& config, Driver& driver) {
  std::string address = FindAddress(config);
  if (address == "private") address.clear();
  const std::string where = address.empty() ? std::string()
                                            : Cat(" (at ", address,
                                                  config.address.empty() && std::getenv("MANTA_ADDRESS") != nullptr
                                                      ? ", which MANTA_ADDRESS names)"
                                                      : ")");
  Result<base::Fd> socket = address.empty() ? StartDaemon(config, &driver.daemon) : Connect(address);
  if (!socket.ok()) return Status(socket.status().code(), socket.status().message() + where);
  Result<shm::Arena> arena = shm::Arena::Create();
  if (!arena.ok()) return arena.status();
  auto shared_arena = std::make_shared<shm::Arena>(std::move(*arena));
  driver.link = std::make_shared<owner::DaemonLink>(std::move(*socket));
  const bool show = config.show_output;
  driver.link->Start(
      [show](wire::Frame& frame) {
        if (frame.kind == wire::Kind::kLogLines) {
          Result<wire::LogLines> lines = frame.As<wire::LogLines>();
          if (show && lines.ok()) Print(*lines);
          return;
        }
        const owner::Visit visit;
        if (visit.owner() != nullptr) visit.owner()->OnMessage(frame);
      },
      [](const std::string& why) {
        const owner::Visit visit;
        if (visit.owner() != nullptr) visit.owner()->OnLost(why);
      });
  wire::Hello hello;
  hello.pid = static_cast<std::uint32_t>(getpid());
  std::random_device random;
  hello.job = Id{(static_cast<std::uint64_t>(random()) << 32) | random(),
                 (static_cast<std::uint64_t>(random()) << 32) | random() | 1};
  hello.program = base::ProgramPath();
  hello.program_hash = base::ProgramHash();
  hello.space = config.space;
  hello.job_name = config.job;
  hello.resume = config.resume;
  hello.keep_lineage = config.keep_lineage;
  if (Status s = owner::ToResources(0, 0, config.quota, &hello.quota); !s.ok()) return s;
  hello.arguments = internal::WorkerCommand().empty() ? OwnArguments() : internal::WorkerCommand();
  const base::Fd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!program.valid()) return Status(Code::kIo, Cat("cannot open this program's own file: ", std::strerror(errno)));
  std::vector<base::Fd> fds;
  Result<wire::Welcome> welcome =
      driver.link->Call<wire::Welcome>(hello, {shared_arena->fd(), program.get()}, &fds, kAnswerUs);
  if (!welcome.ok()) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const bool few = address.empty() && files.rlim_cur < 64;
    return Status(welcome.status().code(),
                  Cat("Init: ", welcome.status().message(), where,
                      address.empty() ? "; it ended right after its start, and said why on stderr" : "",
                      few ? Cat("; this process may open only ", files.rlim_cur, " files: raise `ulimit -n`") : ""));
  }
  if (fds.size() != 1) return Status(Code::kCorrupt, "the daemon's welcome came without the node area");
  Result<shm::NodeArea> node = shm::NodeArea::Open(std::move(fds[0]));
  if (!node.ok()) return node.status();
  owner::Owner::Setup setup;
  setup.link = driver.link;
  setup.arena = shared_arena;
  setup.node = std::make_shared<shm::NodeArea>(std::move(*node));
  setup.welcome = *welcome;
  setup.job = welcome->job;
  if (welcome->resumed) {
    Result<std::unique_ptr<lineage::Recall>> recall =
        lineage::Recall::Load(welcome->lineage, welcome->job, base::ProgramHash());
    if (!recall.ok()) return recall.status();
    setup.recall = std::move(*recall);
  }
  setup.space = config.space;
  setup.function_name = &worker::FunctionName;
  driver.owner = std::make_unique<owner::Owner>(std::move(setup));
  driver.owner->BecomeCurrent();
  return {};
}

// Waits for the private daemon to be gone, so that nothing of ours is left when we return.
void Reap(pid_t daemon) {
  if (daemon == 0) return;
  const std::int64_t until = base::NowMicros() + 5'000'000;
  while (waitpid(daemon, nullptr, WNOHANG) == 0) {
    if (base::NowMicros() > until) {
      kill(daemon, SIGKILL);
      waitpid(daemon, nullptr, 0);
      return;
    }
    usleep(200);
  }
}

// `at_exit`: threads that wait inside stay there. An error would only make them end the program in another way than
// it was about to end; so what they use stays, too, until the process is gone.
void Leave(Driver& driver, bool at_exit) {
  owner::Visit::Close();  // first, so that what the daemon says of the job's end reaches nobody
  if (driver.link != nullptr && driver.owner != nullptr) {
    driver.owner->WriteDown();
    static_cast<void>(driver.link->Call<wire::Done>(wire::Goodbye{}, {}, nullptr, 10'000'000));
  }
  if (driver.link != nullptr) driver.link->Stop();  // no message comes any more, and no call waits for an answer
  if (driver.owner != nullptr && !(at_exit && owner::Visit::AnybodyElse())) {
    driver.owner->Retire();
    owner::Visit::WaitForEverybody();
    driver.owner.reset();
  }
  Reap(driver.daemon);
  // At exit with a thread still inside: never freed, since that thread may look at it until the process is gone.
  if (driver.owner != nullptr) [[maybe_unused]]
    const owner::Owner* left = driver.owner.release();
}

void End(bool at_exit) {
  const std::lock_guard lock(g_mutex);
  if (g_driver == nullptr) return;
  Leave(*g_driver, at_exit);
  g_driver.reset();
}

// Says in one line which cluster a program got that named none: work in a cluster that others use, too, must not come
// as a surprise. The usual case, a private one, is told to people only.
void SayWhichCluster(const Config& config, const Driver& driver) {
  if (!config.address.empty() || !config.show_output) return;
  if (driver.daemon == 0) {
    std::fprintf(stderr,
                 "manta: joined the running cluster at its node %s (address \"private\" starts one of your own)\n",
                 driver.owner->welcome().node.c_str());
  } else if (isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "manta: started a private cluster, which ends with this program\n");
  }
}

}  // namespace

void Init() { Init(Config{}); }

void Init(const Config& config) {
  worker::DivertIfForkServer();
  if (worker::Worker::Current() != nullptr) return;  // a worker belongs to its cluster already
  const std::lock_guard lock(g_mutex);
  if (g_driver != nullptr) throw InvalidError("Init: Manta is initialised already; call Shutdown first");
  Check(CheckConfig(config));
  auto driver = std::make_unique<Driver>();
  if (Status s = Start(config, *driver); !s.ok()) {
    Leave(*driver, false);
    Check(s);
  }
  SayWhichCluster(config, *driver);
  g_driver = std::move(driver);
  static const int registered = std::atexit([] { End(true); });
  static_cast<void>(registered);
}

void Shutdown() { End(false); }

void Commit() {
  const owner::Visit visit;
  if (visit.owner() == nullptr) throw InvalidError("Manta is not initialised: call manta::Init() first");
  Check(visit.owner()->Commit());
}

bool IsInitialized() { return owner::Visit::IsOpen(); }

bool CancelRequested() {
  const worker::Execution* execution = worker::Execution::Current();
  return execution != nullptr && execution->cancel_requested();
}

void CheckCancelled() {
  if (CancelRequested()) throw CancelledError("the task was asked to stop");
}

Context CurrentContext() {
  Context context;
  context.worker_pid = static_cast<std::uint32_t>(getpid());
  const owner::Visit visit;
  if (visit.owner() != nullptr) context.node = visit.owner()->welcome().node;
  if (const worker::Worker* worker = worker::Worker::Current(); worker != nullptr) {
    context.in_worker = true;
    context.gpus = worker->gpus();
  }
  if (const worker::Execution* execution = worker::Execution::Current(); execution != nullptr) {
    context.task = execution->label();
    context.task_id = ToHex(execution->id());
  }
  return context;
}

}  // namespace manta
