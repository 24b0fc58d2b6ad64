#include "worker/stack.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "worker/symbols.h"

namespace user {

struct Counter {
  __attribute__((noinline)) int Add(int n) const { return n + 1; }
};

template <typename T>
__attribute__((noinline)) T Twice(T value) {
  return value + value;
}

}  // namespace user

namespace {

// Not exported: only .symtab knows it.
__attribute__((noinline)) int ParseNumber(const std::string& text) {
  if (text.empty()) throw std::invalid_argument("empty");
  return std::atoi(text.c_str());
}

__attribute__((noinline)) int Outer(const std::string& text) { return ParseNumber(text) + 1; }

template <typename F>
std::string StackOf(F body) {
  const manta::worker::ThrowScope scope;
  try {
    body();
  } catch (...) {
    return manta::worker::DescribeThrow();
  }
  return "nothing thrown";
}

volatile int sink = 0;

__attribute__((noinline)) void CrashHere() {
  volatile int* nowhere = reinterpret_cast<int*>(0x1230);
  *nowhere = 1;
}

__attribute__((noinline)) int Deep(volatile int* above) {
  if (sink == 12345) return 0;  // never; but the compiler must not know
  volatile int here[1000];
  here[0] = *above;
  return Deep(here) + here[0];
}

struct Ended {
  int status = 0;
  std::string err;
};

template <typename F>
Ended InChild(F body) {
  int err[2];
  EXPECT_EQ(pipe(err), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(err[1], 2);
    close(err[0]);
    close(err[1]);
    manta::worker::InstallCrashHandlers();
    body();
    _exit(0);
  }
  close(err[1]);
  Ended ended;
  char piece[4096];
  for (ssize_t n = 0; (n = read(err[0], piece, sizeof piece)) > 0;)
    ended.err.append(piece, static_cast<std::size_t>(n));
  close(err[0]);
  waitpid(pid, &ended.status, 0);
  return ended;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace

namespace manta::worker {
namespace {

TEST(Stack, AThrowNamesFunctionsThatAreNotExported) {
  const std::string stack = StackOf([] { sink = Outer(""); });
  EXPECT_NE(stack.find("  #0 ParseNumber(std::string const&) + 0x"), std::string::npos) << stack;
  EXPECT_NE(stack.find("  #1 Outer(std::string const&) + 0x"), std::string::npos) << stack;
  EXPECT_NE(stack.find("(worker_test) at stack_test.cc:"), std::string::npos) << stack;
  EXPECT_EQ(stack.find("testing::"), std::string::npos) << "the stack ends at the scope: " << stack;
  EXPECT_EQ(stack.find("__cxa_throw"), std::string::npos) << stack;
}

TEST(Stack, NothingIsKeptOutsideAScopeOrOfAnotherThread) {
  std::string stack = "?";
  try {
    sink = Outer("");
  } catch (...) {
    stack = DescribeThrow();
  }
  EXPECT_EQ(stack, "");
  EXPECT_EQ(DescribeThrow(), "");
  const std::string foreign = StackOf([] {
    std::exception_ptr caught;
    std::thread([&] {
      try {
        sink = Outer("");
      } catch (...) {
        caught = std::current_exception();
      }
    }).join();
    std::rethrow_exception(caught);
  });
  EXPECT_EQ(foreign, "");
}

TEST(Stack, AThrowCaughtDuringUnwindingDoesNotHideTheOneThatMatters) {
  struct Noisy {
    ~Noisy() {
      try {
        sink = user::Twice(1);
        throw 1;
      } catch (int) {
      }
    }
  };
  const std::string stack = StackOf([] {
    const Noisy noisy;
    sink = Outer("");
  });
  EXPECT_NE(stack.find("#0 ParseNumber"), std::string::npos) << stack;
}

TEST(Stack, ASecondThrowFromTheSamePlaceIsCheap) {
  // The thread's own time, since others may want the core, too.
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  };
  (void)StackOf([] { sink = Outer(""); });
  constexpr int kRounds = 2000;
  const auto run = [&](bool describe) {
    const double start = now();
    for (int i = 0; i < kRounds; ++i) {
      const ThrowScope scope;
      try {
        sink = Outer("");
      } catch (...) {
        if (describe) sink = static_cast<int>(DescribeThrow().size());
      }
    }
    return (now() - start) / kRounds;
  };
  const auto plain = [&] {
    const double start = now();
    for (int i = 0; i < kRounds; ++i) {
      try {
        sink = Outer("");
      } catch (...) {
      }
    }
    return (now() - start) / kRounds;
  };
  const double bare = plain();
  const double kept = run(false);
  const double described = run(true);
  std::printf("throw %.2f us, kept +%.2f us, described +%.2f us\n", bare, kept - bare, described - kept);
  EXPECT_LT(described, 500.0) << "the symbol table was read again";
}

TEST(Stack, FunctionsHaveNamesAsAPersonWouldSayThem) {
  EXPECT_EQ(FunctionName(reinterpret_cast<const void*>(&Outer)), "Outer");
  EXPECT_EQ(FunctionName(reinterpret_cast<const void*>(&user::Twice<int>)), "user::Twice<int>");
  int (*lambda)(int) = [](int n) { return n + 2; };
  EXPECT_EQ(lambda(1), 3);
  const std::string name = FunctionName(reinterpret_cast<const void*>(lambda));
  EXPECT_NE(name.find("lambda#1"), std::string::npos) << name;
  EXPECT_EQ(name.find('('), std::string::npos) << name;
  const int local = 0;
  EXPECT_EQ(FunctionName(&local).substr(0, 2), "0x");
}

TEST(Stack, ShortNamesLoseResultAndArguments) {
  EXPECT_EQ(ShortName("square(int)"), "square");
  EXPECT_EQ(ShortName("int ns::Twice<int>(int)"), "ns::Twice<int>");
  EXPECT_EQ(ShortName("(anonymous namespace)::f(std::vector<int, std::allocator<int> >)"), "f");
  EXPECT_EQ(ShortName("std::vector<int, std::allocator<int> > g<std::pair<int, int> >(int)"),
            "g<std::pair<int, int> >");
  EXPECT_EQ(ShortName("Counter::Add(int) const"), "Counter::Add");
  EXPECT_EQ(ShortName("main::{lambda(int)#1}::operator()(int) const"), "main::lambda#1");
  EXPECT_EQ(ShortName("main::{lambda(int)#2}::_FUN(int)"), "main::lambda#2");
  EXPECT_EQ(ShortName("Run(int)::{lambda(int)#1}::_FUN(int)"), "Run::lambda#1");
  EXPECT_EQ(ShortName("Vec::operator<<(int)"), "Vec::operator<<");
  EXPECT_EQ(ShortName("Vec::operator bool() const"), "Vec::operator bool");
  EXPECT_EQ(ShortName("Functor::operator()(int)"), "Functor::operator()");
  EXPECT_EQ(ShortName("work(void (*)(int)) [clone .cold]"), "work");
  EXPECT_EQ(ShortName("main"), "main");
}

TEST(Stack, PlainNamesNeedNoMemory) {
  const auto plain = [](std::string_view mangled) {
    char text[64];
    return std::string(text, PlainName(mangled, text));
  };
  EXPECT_EQ(plain("_ZN4user7Counter3AddEi"), "user::Counter::Add");
  EXPECT_EQ(plain("_ZNK4user7Counter3AddEi"), "user::Counter::Add");
  EXPECT_EQ(plain("_ZN12_GLOBAL__N_15CrashEv"), "Crash");
  EXPECT_EQ(plain("_ZL5Crashv"), "Crash");
  EXPECT_EQ(plain("_Z6squarei"), "square");
  EXPECT_EQ(plain("_ZN3FooC2Ev"), "Foo::Foo");
  EXPECT_EQ(plain("_ZN3FooD1Ev"), "Foo::~Foo");
  EXPECT_EQ(plain("main"), "main");
  EXPECT_EQ(plain("_Z5TwiceIiET_S0_"), "_Z5TwiceIiET_S0_");
  EXPECT_EQ(plain("_Z999x"), "_Z999x");
  EXPECT_EQ(plain("_ZN"), "_ZN");
}

TEST(Stack, ACrashTellsItsSignalAddressAndStack) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports";
  const Ended ended = InChild([] { CrashHere(); });
  ASSERT_TRUE(WIFSIGNALED(ended.status));
  EXPECT_EQ(WTERMSIG(ended.status), SIGSEGV);
  EXPECT_NE(ended.err.find("*** SIGSEGV (invalid memory access) at address 0x1230"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("  #0 CrashHere + 0x"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("(worker_test) at stack_test.cc:"), std::string::npos) << ended.err;
}

TEST(Stack, AStackOverflowIsACrashWithAStack) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports";
  const Ended ended = InChild([] {
    volatile int start = 1;
    sink = Deep(&start);
  });
  ASSERT_TRUE(WIFSIGNALED(ended.status));
  EXPECT_EQ(WTERMSIG(ended.status), SIGSEGV);
  EXPECT_NE(ended.err.find("  #0 Deep + 0x"), std::string::npos) << ended.err;
}

TEST(Stack, AbortIllegalInstructionAndDivisionEndWithTheirSignals) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports";
  const Ended aborted = InChild([] { std::abort(); });
  ASSERT_TRUE(WIFSIGNALED(aborted.status));
  EXPECT_EQ(WTERMSIG(aborted.status), SIGABRT);
  EXPECT_NE(aborted.err.find("*** SIGABRT"), std::string::npos) << aborted.err;
  for (const int signal : {SIGBUS, SIGFPE, SIGILL}) {
    const Ended ended = InChild([signal] { raise(signal); });
    ASSERT_TRUE(WIFSIGNALED(ended.status));
    EXPECT_EQ(WTERMSIG(ended.status), signal);
  }
}

TEST(Stack, ACrashInsideMallocIsReported) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports";
  const Ended ended = InChild([] {
    auto* heap = static_cast<volatile std::size_t*>(std::malloc(2000));
    for (int i = -1; i < 400; ++i) heap[i] = ~std::size_t{0};  // over its own and the next block's size
    std::free(const_cast<std::size_t*>(heap));
    for (int i = 0; i < 100; ++i) sink = std::malloc(5000) != nullptr;
  });
  ASSERT_TRUE(WIFSIGNALED(ended.status));
  EXPECT_EQ(WTERMSIG(ended.status), SIGABRT);
  EXPECT_NE(ended.err.find("*** SIGABRT"), std::string::npos) << ended.err;
}

TEST(Stack, QuitShowsTheMainThreadAndGoesOn) {
  const Ended ended = InChild([] {
    std::thread([] { raise(SIGQUIT); }).join();
    usleep(1000);
    raise(SIGQUIT);
    _exit(5);
  });
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 5);
  EXPECT_NE(ended.err.find("*** stack of process"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("  #0 "), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace manta::worker
