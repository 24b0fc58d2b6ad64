// InstallCrashHandlers of worker/stack.h. What runs in a handler allocates nothing and takes no lock: the
// crash may have come from inside malloc.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/program.h"
#include "worker/output.h"
#include "worker/stack.h"
#include "worker/symbols.h"

namespace manta::worker {
namespace {

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kDepth = 48;
constexpr std::size_t kSignalStack = 128U << 10;  // touched only in a crash

// A line of text on the stack, written with one write.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const std::size_t count = std::min(text.size(), sizeof text_ - size_);
    std::memcpy(text_ + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  Line& Number(std::uint64_t value, unsigned radix) {
    char digits[24];
    std::size_t at = sizeof digits;
    do {
      digits[--at] = "0123456789abcdef"[value % radix];
      value /= radix;
    } while (value != 0);
    return *this << std::string_view(digits + at, sizeof digits - at);
  }
  Line& Name(std::string_view mangled) {
    size_ += PlainName(mangled, std::span(text_).subspan(size_));
    return *this;
  }
  void Write() {
    *this << "\n";
    text_[size_ - 1] = '\n';
    for (std::size_t done = 0; done < size_;) {
      const ssize_t wrote = write(STDERR_FILENO, text_ + done, size_ - done);
      if (wrote < 0 && errno != EINTR) return;
      if (wrote > 0) done += static_cast<std::size_t>(wrote);
    }
  }

 private:
  char text_[512];
  std::size_t size_ = 0;
};

struct Walk {
  std::uintptr_t start;  // where the signal struck; frames before it are the handler's
  bool started = false;
  int depth = 0;
  std::uintptr_t frames[kDepth];
};

_Unwind_Reason_Code Step(_Unwind_Context* context, void* argument) {
  auto* walk = static_cast<Walk*>(argument);
  int before = 0;
  const std::uintptr_t at = _Unwind_GetIPInfo(context, &before);
  if (at == 0 || walk->depth == kDepth) return _URC_END_OF_STACK;
  walk->started |= at == walk->start;
  if (walk->started) walk->frames[walk->depth++] = before != 0 ? at : at - 1;
  return _URC_NO_REASON;
}

std::uintptr_t ProgramCounter(const void* context) {
  const auto* user = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(user->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return user->uc_mcontext.pc;
#else
  return 0;
#endif
}

void WriteStack(const void* context) {
  Walk walk{};
  walk.start = ProgramCounter(context);
  _Unwind_Backtrace(Step, &walk);
  if (!walk.started) walk.frames[walk.depth++] = walk.start;  // a jump to nowhere has no frame
  for (int i = 0; i < walk.depth; ++i) {
    const std::uintptr_t at = walk.frames[i];
    const base::Module* module = base::KnownModuleOf(reinterpret_cast<const void*>(at));
    Line line;
    line << "  #";
    line.Number(static_cast<unsigned>(i), 10) << " ";
    Symbol symbol;
    if (module == nullptr) {
      line << "0x";
      line.Number(at, 16).Write();
      continue;
    }
    const SymbolFile file(*module);
    file.Find({&at, 1}, {&symbol, 1});
    // Below the first trampoline there is only our own machinery.
    if (symbol.name.find("5manta8internal") != std::string_view::npos) break;
    if (symbol.name.empty()) {
      line << FileName(module->path) << "+0x";
      line.Number(at - module->base, 16).Write();
    } else {
      line.Name(symbol.name) << " + 0x";
      line.Number(at - module->bias - symbol.value, 16) << " (" << FileName(module->path) << ")";
      if (const Place place = file.FindLine(at); place.line != 0) {
        line << " at " << place.file << ":";
        line.Number(place.line, 10);
      }
      line.Write();
    }
    if (symbol.name == "main" || symbol.name == "_start") break;
  }
}

std::string_view SignalName(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV (invalid memory access)";
    case SIGBUS:
      return "SIGBUS (bus error)";
    case SIGFPE:
      return "SIGFPE (arithmetic error)";
    case SIGILL:
      return "SIGILL (illegal instruction)";
    case SIGABRT:
      return "SIGABRT (abort)";
    default:
      return "a signal";
  }
}

// What comes after ours, by signal: the end of the process, or Python's faulthandler, which writes its frames first.
struct sigaction next_handlers[NSIG];

[[noreturn]] void Die(int signal) {
  sigaction(signal, &next_handlers[signal], nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
  _exit(128 + signal);
}

std::atomic<bool> crashing{false};

void OnCrash(int signal, siginfo_t* info, void* context) {
  // A second thread's crash waits until the first one's report has ended the process. A crash in the handler
  // itself does not come here: these signals are blocked in it, so the kernel ends the process.
  while (crashing.exchange(true)) pause();
  FlushOutputInSignal();
  Line line;
  line << "*** " << SignalName(signal);
  if (signal != SIGABRT && info->si_code > 0) {
    line << " at address 0x";
    line.Number(reinterpret_cast<std::uintptr_t>(info->si_addr), 16);
  } else if (info->si_code <= 0 && info->si_pid != getpid()) {
    line << " sent by process ";
    line.Number(static_cast<std::uint64_t>(info->si_pid), 10);
  }
  line << ", process ";
  line.Number(static_cast<std::uint64_t>(getpid()), 10) << ", stack:";
  line.Write();
  WriteStack(context);
  Die(signal);
}

void OnQuit(int, siginfo_t*, void* context) {
  const int error = errno;
  if (syscall(SYS_gettid) != getpid()) {
    syscall(SYS_tgkill, getpid(), getpid(), SIGQUIT);  // the main thread shall say what it does
  } else {
    FlushOutputInSignal();
    Line line;
    line << "*** stack of process ";
    line.Number(static_cast<std::uint64_t>(getpid()), 10) << ":";
    line.Write();
    WriteStack(context);
  }
  errno = error;
}

bool HasSanitizer() {
  for (const char* name : {"__asan_init", "__tsan_init", "__msan_init"}) {
    if (dlsym(RTLD_DEFAULT, name) != nullptr) return true;
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

// In an interpreter the handlers are Python's own, which go on to those before them. Elsewhere they are the user's.
bool HasPython() {
  const auto initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return initialized != nullptr && initialized() != 0;
}

struct SignalStack {
  SignalStack() {
    memory = mmap(nullptr, kSignalStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = kSignalStack;
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    if (memory == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(memory, kSignalStack);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  void* memory;
};

}  // namespace

void UseSignalStack() {
  static thread_local SignalStack stack;
  (void)stack;
}

void InstallCrashHandlers() {
  (void)base::ModuleOf(reinterpret_cast<const void*>(&OnCrash));  // the handlers only read the table
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = OnQuit;
  sigaction(SIGQUIT, &action, nullptr);
  if (HasSanitizer()) return;  // its report is better than ours
  UseSignalStack();
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = OnCrash;
  // All of them are blocked in the handler: a fault in it then ends the process instead of waiting for itself.
  for (const int signal : kCrashes) sigaddset(&action.sa_mask, signal);
  for (const int signal : kCrashes) {
    struct sigaction& before = next_handlers[signal];
    if (sigaction(signal, nullptr, &before) != 0) continue;
    // What the user's statics installed is theirs.
    if (before.sa_handler == SIG_DFL || HasPython()) sigaction(signal, &action, nullptr);
  }
}

}  // namespace manta::worker
