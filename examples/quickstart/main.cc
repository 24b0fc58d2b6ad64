// A tour of Manta in two seconds: tasks, an actor, Wait, an error caught, and a progress bar.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "manta/manta.h"

namespace {

using namespace std::chrono_literals;

int Square(int x) { return x * x; }
int Add(int a, int b) { return a + b; }
int Where() { return getpid(); }

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int by) { return value_ += by; }

 private:
  int value_;
};

double Divide(double a, double b) {
  if (b == 0) throw std::domain_error("division by zero");
  return a / b;
}

// A few milliseconds of honest work: the primes in [from, from + 5000).
int CountPrimes(int from) {
  int count = 0;
  for (int n = std::max(from, 2); n < from + 5'000; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n && prime; ++d) prime = n % d != 0;
    count += prime;
  }
  return count;
}

void Heading(const char* text) { std::printf("\n\033[1m%s\033[0m\n", text); }

void Bar(std::size_t done, std::size_t all, double seconds) {
  constexpr std::size_t kWidth = 40;
  const std::size_t filled = done * kWidth / all;
  std::string bar;
  for (std::size_t i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  std::printf("\r  %s %zu/%zu tasks, %.1f s", bar.c_str(), done, all, seconds);
  std::fflush(stdout);
}

}  // namespace

// quickstart [N]: how many tasks the last part runs; 300 if not given.
int main(int argc, char** argv) {
  const auto start = std::chrono::steady_clock::now();
  auto since_start = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  manta::Init();
  std::printf("A private cluster was ready after %.0f ms; this program is process %d.\n", since_start() * 1e3,
              getpid());

  Heading("Tasks: functions that run in other processes");
  manta::Ref<int> nine = manta::Task(Square).Remote(3);
  manta::Ref<int> sixteen = manta::Task(Square).Remote(4);
  manta::Ref<int> sum = manta::Task(Add).Remote(nine, sixteen);  // waits for both, there
  std::printf("  3² + 4² = %d, computed by process %d\n", sum.Get(), manta::Task(Where).Remote().Get());

  Heading("An actor: an object in a process of its own");
  auto counter = manta::Actor<Counter>().Remote(10);
  for (int i = 0; i < 4; ++i) (void)counter.Task(&Counter::Add).Remote(1);
  std::printf("  10 + 1 + 1 + 1 + 1 + 100 = %d\n", counter.Task(&Counter::Add).Remote(100).Get());

  Heading("An error: caught here, thrown over there");
  try {
    (void)manta::Task(Divide).SetName("divide").Remote(1, 0).Get();
  } catch (const manta::TaskError& error) {
    std::printf("  %s: %s\n", error.type().c_str(), error.cause().c_str());
  }

  Heading("Wait: results in the order in which they become ready");
  std::vector<manta::Ref<int>> rest;
  const int tasks = argc > 1 ? std::atoi(argv[1]) : 300;
  for (int i = 0; i < tasks; ++i) rest.push_back(manta::Task(CountPrimes).Remote(i * 5'000));
  int primes = 0;
  while (!rest.empty()) {
    auto [ready, waiting] = manta::Wait(rest, std::min<std::size_t>(rest.size(), 10));
    for (int count : manta::Get(ready)) primes += count;
    rest = std::move(waiting);
    Bar(tasks - rest.size(), tasks, since_start());
  }
  std::printf("\n  %d primes below %d\n", primes, tasks * 5'000);

  manta::Shutdown();
  std::printf("\nAll of it took %.1f s, and left nothing behind.\n", since_start());
  return 0;
}
