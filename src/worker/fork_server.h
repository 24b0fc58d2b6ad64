// The fork server: the user's program, started again by the node's daemon, stopped before its main. Its
// statics have run, its pages are warm, so a worker costs one fork. It speaks Fork, Forked and Exited
// (wire/messages.h) over one socket and holds nothing else.
//
// A copy of a process has only the thread that forked. If the program's statics have started threads, a
// copy would wait for them for ever; then each worker is a fresh start of the program instead.
//
// Nobody outlives the daemon: the server leaves when its socket closes, workers die with the server. Processes that a
// worker has started end with it: the server adopts what a worker leaves behind, and kills it, unless its environment
// has MANTA_DETACHED=1.
#pragma once

namespace manta::worker {

// What a worker does, with its socket to the daemon; the result is its exit code. Defined in the worker's
// main file; weak here, so that the parts below it can be tested without.
__attribute__((weak)) int WorkerMain(int socket);

using WorkerEntry = int (*)(int socket);
// Another one than WorkerMain, for tests. nullptr: WorkerMain again.
void SetWorkerEntry(WorkerEntry entry);

// Serves the daemon at `fd` and never returns in the server itself; in a worker returns its exit code, with
// all output flushed.
int ForkServerMain(int fd);

// For a worker that was started afresh: `fds` is "socket,stdout,stderr". Returns its exit code.
int FreshWorkerMain(const char* fds);

}  // namespace manta::worker
