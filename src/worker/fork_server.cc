#include "worker/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "types/text.h"
#include "wire/frame.h"
#include "wire/local_connect.h"
#include "wire/messages.h"
#include "worker/output.h"

namespace manta::worker {
namespace {

WorkerEntry entry = nullptr;

struct WorkerFds {
  base::Fd socket;
  base::Fd out;
  base::Fd err;
};

int child_event = -1;
void OnChild(int) {
  const int error = errno;
  const std::uint64_t one = 1;
  (void)!write(child_event, &one, sizeof one);
  errno = error;
}

// More than one means that a copy of this process would lack some. /proc counts them as folders.
bool HasThreads() {
  struct stat tasks{};
  return stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink > 3;
}

// Received descriptors must not land on 0..2.
void OpenMissingStandardFds() {
  for (;;) {
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd > STDERR_FILENO || fd < 0) {
      if (fd >= 0) close(fd);
      return;
    }
    fcntl(fd, F_SETFD, 0);
  }
}

// Async-signal-safe, because a fresh start calls it between fork and exec.
void UseStandardFds(int out, int err) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
  if (out != STDOUT_FILENO) dup2(out, STDOUT_FILENO);
  if (err != STDERR_FILENO) dup2(err, STDERR_FILENO);
}

void DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it went before we asked
}

// If the kernel has to kill somebody for want of memory, let it be a worker: that is an error of one task, while the
// death of the driver or the daemon is the end of everything.
void OfferToTheMemoryKiller() {
  const base::Fd file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  constexpr std::string_view kFirst = "1000";
  (void)!write(file.get(), kFirst.data(), kFirst.size());
}

constexpr std::string_view kDetachedVariable = "MANTA_DETACHED=1";
constexpr int kRefused = 77;  // exit status: the socket's other end is of another user

// Before the first byte: the daemon sends what this process executes.
bool OfThisUser(int socket, const char* what) {
  const Status status = wire::CheckPeerUser(socket, what);
  if (!status.ok()) std::fprintf(stderr, "manta: %s\n", status.message().c_str());
  return status.ok();
}

// The children of this process, zombies too.
std::vector<pid_t> Children() {
  std::ifstream file(Cat("/proc/self/task/", getpid(), "/children"));
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

int RunWorker(base::Fd socket) {
  prctl(PR_SET_NAME, "manta-worker");
  // Orphans of its children stay its own, so that all of them go to the fork server when it ends, and not before.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!OfThisUser(socket.get(), "this worker's socket")) return kRefused;
  OfferToTheMemoryKiller();
  fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
  const WorkerEntry run = entry != nullptr ? entry : &WorkerMain;
  if (run == nullptr) {
    std::fputs("manta: this program's libmanta.so lacks WorkerMain; it was not linked whole\n", stderr);
    return 70;
  }
  const int code = run(socket.release());
  std::cout.flush();
  FlushAllOutput();
  return code;
}

// The words of a NUL-separated file such as /proc/self/cmdline.
std::vector<std::string> Words(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    words.emplace_back(text.c_str() + at);
    at += words.back().size() + 1;
  }
  return words;
}

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Was it started so that it outlives its worker (doc/python.md)? As its environment was when its program began.
bool IsDetached(pid_t pid) {
  const std::vector<std::string> variables = Words(Cat("/proc/", pid, "/environ").c_str());
  return std::find(variables.begin(), variables.end(), kDetachedVariable) != variables.end();
}

class Server {
 public:
  explicit Server(int socket) : socket_(socket), pid_(getpid()) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    // Of the user's statics.
    for (const pid_t child : Children()) kept_.insert(child);
    // From here on it sees the daemon's end by its socket, and has something to do then. The daemon may have stopped
    // it.
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) & ~O_NONBLOCK);
    // A handler and not a signalfd: if the statics have started a thread, the kernel may give SIGCHLD to that.
    child_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    child_ended_.Reset(child_event);
    struct sigaction action{};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
    action.sa_handler = OnChild;
    sigaction(SIGCHLD, &action, &on_child_);
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &chld, &mask_);
  }

  // Comes back only in a worker.
  WorkerFds Run() {
    for (;;) {
      pollfd ready[] = {{socket_.get(), POLLIN, 0}, {child_ended_.get(), POLLIN, 0}};
      if (poll(ready, 2, -1) < 0) {
        if (errno != EINTR) _exit(1);
        continue;
      }
      if (ready[1].revents != 0) Reap();
      if (ready[0].revents == 0) continue;
      std::array<std::byte, 1024> bytes;
      std::vector<base::Fd> fds;
      std::size_t count = 0;
      bool would_block = false;
      const Status status = wire::Receive(socket_.get(), bytes, &count, &fds, &would_block);
      if (!status.ok()) Fail(status);
      if (would_block) continue;
      if (count == 0) End();  // the daemon is gone, or has no more use for this process
      reader_.Add(std::span(bytes).first(count), std::move(fds));
      for (wire::Frame frame;;) {
        Result<bool> next = reader_.Next(&frame);
        if (!next.ok()) Fail(next.status());
        if (!*next) break;
        if (std::optional<WorkerFds> mine = Handle(&frame)) return std::move(*mine);
      }
    }
  }

 private:
  [[noreturn]] static void Fail(const Status& status) {
    std::fprintf(stderr, "manta: the fork server ends: %s\n", status.message().c_str());
    _exit(1);
  }

  template <typename M>
  void Send(const M& message) {
    const std::string frame = wire::EncodeFrame(message);
    if (!wire::SendAll(socket_.get(), std::as_bytes(std::span(frame)), {}).ok()) End();
  }

  // The worker's descriptors if this process is now the worker.
  std::optional<WorkerFds> Handle(wire::Frame* frame) {
    Result<wire::Fork> message = frame->As<wire::Fork>();
    if (!message.ok()) Fail(message.status());
    if (frame->fds.size() != 3) Fail(Status(Code::kCorrupt, Cat("Fork with ", frame->fds.size(), " descriptors")));
    WorkerFds fds{std::move(frame->fds[0]), std::move(frame->fds[1]), std::move(frame->fds[2])};
    const bool fresh = HasThreads();
    const pid_t pid = fresh ? ForkFresh(fds) : fork();
    if (pid == 0) {
      DieWithParent(pid_);
      sigaction(SIGCHLD, &on_child_, nullptr);
      sigprocmask(SIG_SETMASK, &mask_, nullptr);
      return fds;
    }
    wire::Forked forked;
    forked.ticket = message->ticket;
    if (pid < 0) {
      forked.error = errno;
    } else {
      forked.pid = static_cast<std::uint32_t>(pid);
      children_.insert(pid);
    }
    Send(forked);
    return std::nullopt;
  }

  // Everything that allocates happens before the fork: another thread may hold malloc's lock.
  pid_t ForkFresh(const WorkerFds& fds) {
    std::vector<std::string> arguments = Words("/proc/self/cmdline");
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
    variables.push_back(Cat("MANTA_WORKER_FDS=", fds.socket.get(), ",1,2"));
    const std::vector<char*> argv = Pointers(&arguments);
    const std::vector<char*> envp = Pointers(&variables);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    DieWithParent(pid_);
    UseStandardFds(fds.out.get(), fds.err.get());
    fcntl(fds.socket.get(), F_SETFD, 0);
    sigaction(SIGCHLD, &on_child_, nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
    execve("/proc/self/exe", argv.data(), envp.data());
    constexpr std::string_view kText = "manta: cannot start the program again as a worker\n";
    (void)!write(STDERR_FILENO, kText.data(), kText.size());
    _exit(127);
  }

  // Children of the user's statics are reaped, too: their main, which would wait for them, never runs.
  void Reap() {
    std::uint64_t count = 0;
    (void)!read(child_ended_.get(), &count, sizeof count);
    for (;;) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid <= 0) break;
      kept_.erase(pid);
      if (children_.erase(pid) == 0) continue;
      wire::Exited exited;
      exited.pid = static_cast<std::uint32_t>(pid);
      exited.status = status;
      Send(exited);
    }
    static_cast<void>(KillOrphans());
  }

  // Children that are no workers were those of a worker, which has ended: they end with it. Their own children come to
  // us when they have. True: some were killed.
  bool KillOrphans() {
    bool killed = false;
    for (const pid_t child : Children()) {
      if (children_.contains(child) || kept_.contains(child)) continue;
      if (IsDetached(child)) {
        kept_.insert(child);
      } else {
        kill(child, SIGKILL);
        killed = true;
      }
    }
    return killed;
  }

  [[noreturn]] void End() {
    for (const pid_t worker : children_) kill(worker, SIGKILL);
    // Each turn reaps one that has been killed.
    while (KillOrphans() || !children_.empty()) {
      const pid_t pid = waitpid(-1, nullptr, 0);
      if (pid < 0 && errno != EINTR) break;
      children_.erase(pid);
      kept_.erase(pid);
    }
    _exit(0);
  }

  base::Fd socket_;
  base::Fd child_ended_;
  pid_t pid_;
  sigset_t mask_{};              // as the program had it
  struct sigaction on_child_{};  // as the program had it
  wire::FrameReader reader_;     // may hold descriptors of workers to come: gone in a worker
  std::unordered_set<pid_t> children_;
  std::unordered_set<pid_t> kept_;  // children that are neither workers nor left over from one
};

// Scoped, so that a worker drops all the server held.
WorkerFds Serve(int fd) {
  Server server(fd);
  return server.Run();
}

}  // namespace

void SetWorkerEntry(WorkerEntry other) { entry = other; }

int ForkServerMain(int fd) {
  prctl(PR_SET_NAME, "manta-fork");
  OpenMissingStandardFds();
  // What statics printed must not be printed again by each worker.
  std::cout.flush();
  std::fflush(nullptr);
  if (!OfThisUser(fd, "this fork server's socket")) return kRefused;
  WorkerFds fds = Serve(fd);
  UseStandardFds(fds.out.get(), fds.err.get());
  fds.out.Reset(-1);
  fds.err.Reset(-1);
  return RunWorker(std::move(fds.socket));
}

int FreshWorkerMain(const char* fds) {
  int socket = -1;
  int out = -1;
  int err = -1;
  if (std::sscanf(fds, "%d,%d,%d", &socket, &out, &err) != 3 || fcntl(socket, F_GETFD) < 0) {
    std::fprintf(stderr, "manta: MANTA_WORKER_FDS=%s names no open descriptors\n", fds);
    return 70;
  }
  UseStandardFds(out, err);
  return RunWorker(base::Fd(socket));
}

}  // namespace manta::worker
