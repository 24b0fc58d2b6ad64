// Labelled output of a worker. Its descriptors 1 and 2 are pipes to the node's daemon, which shows each
// line at the driver with the name of the task that wrote it. A line made of byte 0x01, a label and
// '\n' tells the daemon whose lines follow on that pipe.
//
// InstallOutput() replaces stdout, stderr, std::cout, std::cerr and std::clog. All of a thread's writes to
// one of them meet in one line buffer of that thread, so printf and cout keep their order and two
// threads never share a line. A whole line is written at once, after its label if that changed since the
// last line of that pipe. A line without its end waits for FlushOutput(), which ends it: lines are what
// the driver shows, and the next task must not continue a stranger's.
//
// A thread without a label (one that the task started) writes under the last label set in the process.
// Raw write(1, …) goes along with the label written last.
//
// Threads: everything may be called from any thread. Lost at SIGKILL or _exit(): unfinished lines.
#pragma once

#include <string_view>

namespace manta::worker {

// Once, in a worker, after 1 and 2 are the pipes.
void InstallOutput();

// Whose output follows on this thread. Keeps the pointer: the text must live as long as the process
// (names of functions do). Ends the thread's unfinished lines first.
void SetLabel(std::string_view label);

// From now on this one for all threads, whatever SetLabel says; a copy is kept. Once, by the thread that runs calls.
void SetProcessLabel(std::string_view label);

// Writes and ends the unfinished lines of this thread. One load if there are none.
void FlushOutput();

// Before _exit(): the unfinished lines of all threads, and whatever old stdio streams still hold.
void FlushAllOutput();

// In a signal handler, before it writes to descriptor 2: unfinished lines and this thread's label, as far
// as they can be had without waiting for a lock or allocating.
void FlushOutputInSignal();

}  // namespace manta::worker
