// ForkServer is a driver's program started again, up to but without its main: it forks a worker on
// request, a millisecond each. This class starts the process, speaks with it and sees it die.
//
// Lifetime: the process dies with this object (and with the daemon, however that ends). Callbacks
// come from the loop, or from inside Fork.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "node/output.h"
#include "types/status.h"
#include "wire/connection.h"

namespace manta::node {

// What to execute, and how the driver was started.
struct Program {
  std::string path;     // for messages
  base::Fd executable;  // the driver's own file, even if its path was overwritten since
  base::Fd directory;   // its working directory; not valid: the daemon's own
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
};

// "was killed by signal 11 (SIGSEGV)" or "exited with status 3", of what waitpid said.
[[nodiscard]] std::string DescribeExit(int status);
// Ended by SIGKILL or SIGTERM, which a program does not get for its own faults.
[[nodiscard]] bool KilledFromOutside(int status);

class ForkServer {
 public:
  struct Events {
    std::function<void(const wire::Forked&)> forked;
    std::function<void(const wire::Exited&)> exited;
    std::function<void(std::vector<wire::LogLine>)> lines;
    ProcessOutput::Ready ready;  // for more lines
    // Once, from the loop; says how and its last lines. `killed`: by a signal from outside, not by Kill.
    std::function<void(const Status& why, bool killed)> died;
  };

  ForkServer(base::Loop& loop, Events events);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  Status Start(const Program& program);
  void Fork(std::uint64_t ticket, int socket, int out, int error);
  // Something is wrong with it; `died` will say so.
  void Kill(const std::string& why);
  void Signal(int number) const;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void OnFrame(wire::Frame& frame);
  void OnDeath();

  base::Loop& loop_;
  Events events_;
  pid_t pid_ = -1;
  base::Fd pidfd_;
  bool reaped_ = false;
  std::string kill_reason_;
  std::string path_;
  std::unique_ptr<wire::Connection> connection_;
  std::unique_ptr<ProcessOutput> output_;
};

}  // namespace manta::node
