#include "node/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

namespace manta::node {
namespace {

constexpr int kEndMs = 500;
constexpr int kServerFd = 3;  // where the program finds its socket, as MANTA_FORK_SERVER_FD says

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// What the dynamic linker says: "prog: error while loading shared libraries: libx.so.1: cannot open shared object
// file".
std::string MissingLibrary(const std::string& text) {
  constexpr std::string_view kMark = "error while loading shared libraries: ";
  const std::size_t at = text.find(kMark);
  if (at == std::string::npos || text.find("No such file", at) == std::string::npos) return {};
  const std::size_t begin = at + kMark.size();
  return text.substr(begin, text.find(':', begin) - begin);
}

// In the child, between fork and exec: only what is safe there.
[[noreturn]] void Execute(pid_t parent, int executable, int directory, int socket, int out, int error, char** arguments,
                          char** environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  setsid();  // a Ctrl-C at the terminal is the driver's alone
  // Out of the way of the numbers they shall have.
  executable = fcntl(executable, F_DUPFD_CLOEXEC, 10);
  if (directory >= 0 && fchdir(directory) != 0) directory = -1;
  socket = fcntl(socket, F_DUPFD_CLOEXEC, 10);
  out = fcntl(out, F_DUPFD_CLOEXEC, 10);
  error = fcntl(error, F_DUPFD_CLOEXEC, 10);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(out, 1);
  dup2(error, 2);
  dup2(socket, kServerFd);
  close_range(kServerFd + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (int number = 1; number < 32; ++number) {
    if (number != SIGKILL && number != SIGSTOP) signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  syscall(SYS_execveat, executable, "", arguments, environment, AT_EMPTY_PATH);
  const char* reason = std::strerror(errno);
  const char text[] = "cannot execute the program again: ";
  if (write(2, text, sizeof text - 1) < 0 || write(2, reason, std::strlen(reason)) < 0) _exit(126);
  _exit(127);
}

bool HasChildren(pid_t pid) {
  std::ifstream children(Cat("/proc/", pid, "/task/", pid, "/children"));
  pid_t child = 0;
  return static_cast<bool>(children >> child);
}

// Ends a fork server whose connection is closed. The fork server first ends its workers and the processes that they
// have started (worker/fork_server.h), which takes some milliseconds.
void End(pid_t pid, int pidfd) {
  if (pidfd >= 0 && HasChildren(pid)) {
    pollfd ended{pidfd, POLLIN, 0};
    while (poll(&ended, 1, kEndMs) < 0 && errno == EINTR) {
    }
  }
  kill(pid, SIGKILL);  // not reaped, so the number is still its own
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return Cat("was killed by signal ", WTERMSIG(status), name == nullptr ? "" : Cat(" (SIG", name, ")"));
  }
  if (WIFEXITED(status)) return Cat("exited with status ", WEXITSTATUS(status));
  return Cat("ended with wait status ", status);
}

bool KilledFromOutside(int status) {
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
}

ForkServer::ForkServer(base::Loop& loop, Events events) : loop_(loop), events_(std::move(events)) {}

ForkServer::~ForkServer() {
  if (pidfd_.valid()) loop_.Unwatch(pidfd_.get());
  connection_.reset();
  if (pid_ > 0 && !reaped_) End(pid_, pidfd_.get());
  if (output_ != nullptr) output_->Finish();
}

Status ForkServer::Start(const Program& program) {
  path_ = program.path;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status(Code::kIo, Cat("cannot make a socket for the fork server: ", std::strerror(errno)));
  }
  base::Fd here(pair[0]);
  const base::Fd there(pair[1]);
  fcntl(here.get(), F_SETFL, O_NONBLOCK);
  output_ = std::make_unique<ProcessOutput>(loop_, events_.lines, events_.ready);
  base::Fd out;
  base::Fd error;
  if (Status status = output_->Open(&out, &error); !status.ok()) return status;

  std::vector<std::string> environment;
  for (const std::string& entry : program.environment) {
    if (entry.rfind("MANTA_FORK_SERVER_FD=", 0) != 0) environment.push_back(entry);
  }
  environment.push_back(Cat("MANTA_FORK_SERVER_FD=", kServerFd));
  std::vector<std::string> arguments = program.arguments;
  if (arguments.empty()) arguments.push_back(program.path);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);

  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    Execute(parent, program.executable.get(), program.directory.get(), there.get(), out.get(), error.get(),
            const_cast<char**>(argv.data()), const_cast<char**>(envp.data()));
  }
  if (pid_ < 0) return Status(Code::kUnavailable, Cat("cannot fork: ", std::strerror(errno)));
  output_->SetPid(static_cast<std::uint32_t>(pid_));
  pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_.valid()) return Status(Code::kIo, Cat("cannot watch the fork server: ", std::strerror(errno)));
  if (Status status = loop_.Watch(pidfd_.get(), EPOLLIN, [this](std::uint32_t) { OnDeath(); }); !status.ok()) {
    return status;
  }
  connection_ = std::make_unique<wire::Connection>(
      loop_, std::move(here), [this](wire::Frame& frame) { OnFrame(frame); },
      [this](const Status& why) { Kill(why.ok() ? "it closed its connection" : why.message()); });
  return connection_->Start();
}

void ForkServer::Fork(std::uint64_t ticket, int socket, int out, int error) {
  if (connection_ != nullptr) connection_->Send(wire::Fork{ticket}, 0, {socket, out, error});
}

void ForkServer::Signal(int number) const {
  if (pid_ > 0 && !reaped_) kill(pid_, number);  // not reaped, so the number is still its own
}

void ForkServer::Kill(const std::string& why) {
  if (reaped_ || pid_ <= 0) return;
  if (kill_reason_.empty()) kill_reason_ = why;
  kill(pid_, SIGKILL);
}

void ForkServer::OnFrame(wire::Frame& frame) {
  if (frame.kind == wire::Kind::kForked) {
    if (const Result<wire::Forked> message = frame.As<wire::Forked>(); message.ok())
      return events_.forked(message.value());
  } else if (frame.kind == wire::Kind::kExited) {
    if (const Result<wire::Exited> message = frame.As<wire::Exited>(); message.ok())
      return events_.exited(message.value());
  }
  connection_->Close(
      Status(Code::kCorrupt, Cat("it sent message ", static_cast<int>(frame.kind), " that makes no sense")));
}

void ForkServer::OnDeath() {
  connection_->ReadNow();  // what it reported before
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return;
  reaped_ = true;
  loop_.Unwatch(pidfd_.get());
  pidfd_.Reset(-1);
  output_->Finish();
  const std::string tail = output_->Tail();
  if (const std::string library = MissingLibrary(tail); !library.empty()) {
    const auto callback = events_.died;
    return callback(
        Status(Code::kUnavailable, Cat("the shared library ", library, ", which '", path_,
                                       "' needs, is not on this machine: install it here, or link it statically")),
        false);
  }
  std::string text = Cat("the fork server of '", path_, "' (pid ", pid_, ") ", DescribeExit(status));
  if (!kill_reason_.empty()) text += Cat(" (", kill_reason_, ")");
  text += tail.empty() ? "; it printed nothing" : "; its last lines:\n" + tail;
  const auto died = events_.died;  // which may destroy this object
  died(Status(Code::kUnavailable, text), kill_reason_.empty() && KilledFromOutside(status));
}

}  // namespace manta::node
