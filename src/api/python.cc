// Python inside a worker of a C++ program: started by the first call that needs it (manta/python.h).
//
// The interpreter is asked for its shared library and its sys.path, the library is loaded, and the package manta
// imported, whose extension then runs calls. It stays until the process ends. Why not a second fork server that is
// Python: a lease would have to say which of two programs it wants, for something that few programs do; a worker that
// has Python is used again for the next call anyway.
#include <dlfcn.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "manta/errors.h"
#include "manta/internal/foreign_call.h"
#include "types/text.h"

namespace manta::internal {
namespace {

std::atomic<Trampoline> g_runner{nullptr};

// Prints the names under which the shared library may be found, one in a line, then a line with the program that sets
// up sys.path in the new interpreter.
constexpr char kAsk[] =
    "import os, sys, sysconfig as s\n"
    "v = s.get_config_var\n"
    "n = v('INSTSONAME') or v('LDLIBRARY') or ''\n"
    "d = [os.path.join(v('LIBDIR') or '', v('MULTIARCH') or ''), v('LIBDIR') or '', os.path.join(sys.base_prefix, "
    "'lib')]\n"
    "print('\\n'.join([os.path.join(i, n) for i in d if os.path.isfile(os.path.join(i, n))] + [n]))\n"
    "print()\n"
    "print('import sys; sys.path[:] = %r; sys.executable = %r; sys.prefix = %r; sys.exec_prefix = %r; sys.argv = "
    "[\"\"]'\n"
    "      % ([os.path.abspath(p) for p in sys.path], sys.executable, sys.prefix, sys.exec_prefix))\n";

std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string Interpreter() {
  const char* named = std::getenv("MANTA_PYTHON");
  return named != nullptr && *named != '\0' ? named : "python3";
}

std::vector<std::string> Ask(const std::string& interpreter) {
  FILE* pipe = popen((Quoted(interpreter) + " -c " + Quoted(kAsk)).c_str(), "re");
  if (pipe == nullptr) throw UnavailableError(Cat("cannot start ", interpreter));
  std::string text;
  std::array<char, 4096> part;
  for (std::size_t count = 0; (count = fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), count);
  if (const int status = pclose(pipe); status != 0) {
    throw UnavailableError(Cat("Python functions need an interpreter, but '", interpreter, "' ended with status ",
                               WEXITSTATUS(status), "; set MANTA_PYTHON to one that has the package manta"));
  }
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void StartPython() {
  const std::string interpreter = Interpreter();
  const std::vector<std::string> lines = Ask(interpreter);
  void* library = nullptr;
  std::size_t line = 0;
  for (; line < lines.size() && !lines[line].empty(); ++line) {
    // Global, because extension modules expect the interpreter's symbols to be there.
    if (library == nullptr) library = dlopen(lines[line].c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  if (library == nullptr) {
    throw UnavailableError(Cat("'", interpreter, "' has no shared library (", lines.empty() ? "?" : lines.front(),
                               ") that a C++ program can load: install libpython, or set MANTA_PYTHON to another"));
  }
  const auto initialize = reinterpret_cast<void (*)(int)>(dlsym(library, "Py_InitializeEx"));
  const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(library, "PyRun_SimpleString"));
  const auto save = reinterpret_cast<void* (*)()>(dlsym(library, "PyEval_SaveThread"));
  if (initialize == nullptr || run == nullptr || save == nullptr || line + 1 >= lines.size())
    throw UnavailableError(Cat("the shared library of '", interpreter, "' is not one of Python"));
  initialize(0);
  const int failed = run((lines[line + 1] + "\nimport manta._worker"
                                            "\nmanta._worker.begin_embedded()")
                             .c_str());
  save();
  if (failed != 0 || g_runner.load() == nullptr) {
    throw UnavailableError(Cat("the package manta of '", interpreter,
                               "' cannot be imported (see the worker's output): install it there, or set PYTHONPATH"));
  }
}

}  // namespace

void SetForeignRunner(Trampoline runner) { g_runner.store(runner); }

void RunForeign(Invocation& call) {
  Trampoline runner = g_runner.load(std::memory_order_acquire);
  if (runner == nullptr) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    static bool tried = false;  // an interpreter cannot be started twice
    if (g_runner.load() == nullptr) {
      if (std::exchange(tried, true)) throw UnavailableError("Python could not be started in this worker before");
      StartPython();
    }
    runner = g_runner.load();
  }
  runner(call);
}

}  // namespace manta::internal
