// Stacks for error messages: of the throw that ended a task, of a crash, of a task that takes too long.
//
// libmanta.so interposes __cxa_throw. While a thread is inside a ThrowScope, each throw keeps its return
// addresses (about a microsecond); names are looked up only if DescribeThrow() is asked, from the symbol
// tables of the files themselves, so functions that are not exported have names, too.
#pragma once

#include <cstddef>
#include <string>

namespace manta::worker {

// Put around the call of a user's function: throws inside are kept, and their stacks end here.
// Scopes nest. Only the thread that made it may use it.
class ThrowScope {
 public:
  ThrowScope();
  ~ThrowScope();
  ThrowScope(const ThrowScope&) = delete;
  ThrowScope& operator=(const ThrowScope&) = delete;

 private:
  const void* outer_;
};

// Inside a catch block: where the exception at hand was thrown, one line per function, innermost first,
//   "  #0 Parse(std::string const&) + 0x1f (my_program) at parse.cc:12\n"
// (the place if the program was compiled with -g)
// without the frames of libmanta.so and of the task's own invocation. Empty if that is unknown (thrown by
// another thread, or before the scope).
[[nodiscard]] std::string DescribeThrow();

// The name of the function at this address as a person would say it: namespaces yes, arguments no.
// "Counter::Add", "main::lambda#1"; "program+0x1234" if the file was stripped.
[[nodiscard]] std::string FunctionName(const void* address);

// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write what happened and a stack to descriptor 2, then end the
// process with that signal. Left to the sanitizer, if there is one. SIGQUIT writes the main thread's
// stack and goes on. Each further thread that runs user's code calls UseSignalStack() itself.
void InstallCrashHandlers();

// A stack for the handlers, so that an overflow of the thread's own can be told. Freed at thread's end.
void UseSignalStack();

}  // namespace manta::worker
