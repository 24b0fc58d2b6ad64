// What goes wrong over there is an exception here: one family, each with what failed and what to do.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "manta/manta.h"

namespace {

using namespace std::chrono_literals;

int Parse(const std::string& text) { return std::stoi(text); }

int Crash(int) {
  std::fprintf(stderr, "this line is shown in the error, too\n");
  raise(SIGSEGV);
  return 0;
}

void SleepFor(int seconds) {
  for (int i = 0; i < seconds * 100; ++i) {
    manta::CheckCancelled();  // throws when somebody has asked us to stop
    std::this_thread::sleep_for(10ms);
  }
}

void Show(const char* what, const std::exception& error) { std::printf("--- %s\n%s\n\n", what, error.what()); }

}  // namespace

int main() {
  manta::Init();

  try {
    manta::Task(Parse).SetName("parse").Remote("not a number").Get();
  } catch (const manta::TaskError& error) {
    Show("the function threw", error);
  }

  try {
    manta::Task(Crash).SetName("crash").SetRetries(0).Remote(1).Get();
  } catch (const manta::WorkerCrashedError& error) {
    Show("its process died", error);
  }

  try {
    manta::Task(SleepFor).SetName("sleep").SetTimeout(100ms).SetRetries(0).Remote(60).Get();
  } catch (const manta::TimeoutError& error) {
    Show("it took too long", error);
  }

  manta::Ref<void> slow = manta::Task(SleepFor).SetName("sleep").Remote(60);
  manta::Cancel(slow);
  try {
    slow.Get();
  } catch (const manta::CancelledError& error) {
    Show("it was cancelled", error);
  }

  // Without exceptions: TryGet.
  auto result = manta::TryGet(manta::Task(Parse).Remote("42"));
  if (result) std::printf("parsed %d\n", *result);

  // Trouble that may pass: run it again when it throws this.
  auto patient = manta::Task(Parse).RetryOn<std::out_of_range>().SetRetries(2);
  std::printf("parsed %d\n", patient.Remote("7").Get());

  manta::Shutdown();
  return 0;
}
