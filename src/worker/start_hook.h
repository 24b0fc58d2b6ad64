// Keeps the user's main from running in fork servers and workers.
//
// libmanta.so defines __libc_start_main, which every program calls first. With MANTA_FORK_SERVER_FD (or
// MANTA_WORKER_FDS, see fork_server.cc) in the environment it gives the C library another main; statics
// are constructed as always. The variables are gone before any of the program's code runs.
#pragma once

namespace manta::worker {

// What runs instead of main with MANTA_REPLAY and MANTA_REPLAY_TASKS in the environment (api/replay.cc). Set by the
// library's own statics, which are constructed before.
using ReplayEntry = int (*)(const char* folder, const char* which);
void SetReplayMain(ReplayEntry entry);

// This process is a fork server or a worker.
[[nodiscard]] bool InWorkerProcess();

// For a program whose start did not come by here (libmanta.so was loaded behind the C library): becomes a
// fork server or worker and never returns, if the environment says so. Otherwise does nothing.
void DivertIfForkServer();

}  // namespace manta::worker
