#include "worker/start_hook.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "worker/fork_server.h"

namespace manta::worker {
namespace {

// Plain words: read before the constructors of this library's users, kept after their destructors.
int server_fd = -1;
char fresh_fds[64];
bool in_worker = false;
ReplayEntry replay_main = nullptr;
char* replay_folder = nullptr;  // copies, never freed
char* replay_tasks = nullptr;

// Takes the variables out of the environment. True if this process is not to run the user's main.
bool TakeOrders() {
  if (const char* text = secure_getenv("MANTA_FORK_SERVER_FD")) {
    char* end = nullptr;
    const long fd = std::strtol(text, &end, 10);
    const bool good = end != text && *end == '\0' && fd >= 0 && fcntl(static_cast<int>(fd), F_GETFD) >= 0;
    if (good) server_fd = static_cast<int>(fd);
    unsetenv("MANTA_FORK_SERVER_FD");
    in_worker |= good;
  }
  if (const char* text = secure_getenv("MANTA_WORKER_FDS")) {
    std::strncpy(fresh_fds, text, sizeof fresh_fds - 1);
    unsetenv("MANTA_WORKER_FDS");
    in_worker = true;
  }
  const char* folder = secure_getenv("MANTA_REPLAY");
  const char* tasks = secure_getenv("MANTA_REPLAY_TASKS");
  if (folder != nullptr && tasks != nullptr && replay_main != nullptr && !in_worker) {
    replay_folder = strdup(folder);
    replay_tasks = strdup(tasks);
  }
  unsetenv("MANTA_REPLAY");
  unsetenv("MANTA_REPLAY_TASKS");
  return in_worker || replay_folder != nullptr;
}

// Statics are not destroyed: a worker is a copy, and what they would clean up is the driver's.
int WorkerInsteadOfMain(int, char**, char**) {
  if (replay_folder != nullptr && !in_worker) std::exit(replay_main(replay_folder, replay_tasks));
  _exit(fresh_fds[0] != '\0' ? FreshWorkerMain(fresh_fds) : ForkServerMain(server_fd));
}

}  // namespace

void SetReplayMain(ReplayEntry entry) { replay_main = entry; }

bool InWorkerProcess() { return in_worker; }

void DivertIfForkServer() {
  if (!in_worker && replay_folder == nullptr && TakeOrders()) WorkerInsteadOfMain(0, nullptr, nullptr);
}

}  // namespace manta::worker

using MainFunction = int (*)(int, char**, char**);
using StartFunction = int (*)(MainFunction, int, char**, void (*)(), void (*)(), void (*)(), void*);

extern "C" __attribute__((visibility("default"))) int __libc_start_main(MainFunction main, int argc, char** argv,
                                                                        void (*init)(), void (*fini)(),
                                                                        void (*loader_fini)(), void* stack_end) {
  const auto real = reinterpret_cast<StartFunction>(dlsym(RTLD_NEXT, "__libc_start_main"));
  if (real == nullptr) _exit(127);
  if (manta::worker::TakeOrders()) main = manta::worker::WorkerInsteadOfMain;
  return real(main, argc, argv, init, fini, loader_fini, stack_end);
}
