// A driver with tasks and an actor running, that ends in the way it is told to. lifecycle_test then
// looks for what it left behind.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "manta/manta.h"

namespace {

struct Keeper {
  int Ping() { return 1; }
};

void Spin() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Made after Init, so destroyed before Shutdown; but after the thread_locals of main.
struct Last {
  ~Last() {
    const auto large = manta::Put(std::string(1 << 20, 'y'));
    const auto size = manta::Task([](const std::string& text) { return text.size(); }).Remote(large);
    if (size.Get() != 1 << 20) _exit(1);
  }
};

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  manta::Config config;
  config.cpus = 2;
  config.store_bytes = 64 << 20;
  manta::Init(config);
  const auto keeper = manta::Actor<Keeper>().Remote();
  keeper.Task(&Keeper::Ping).Remote().Get();
  const auto object = manta::Put(std::string(8 << 20, 'x'));
  const auto busy = manta::Task(Spin).Remote();
  std::vector<manta::Ref<int>> queued;
  for (int i = 0; i < 100; ++i) queued.push_back(manta::Task([](int x) { return x; }).Remote(i));
  for (const auto& ref : queued) ref.Get();
  std::printf("ready\n");
  std::fflush(stdout);
  if (how == "return") return 0;
  if (how == "static") {
    static const Last last;
    return 0;
  }
  if (how == "waiting_thread") {
    std::thread([busy] { busy.Get(); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return 3;
  }
  if (how == "shutdown") manta::Shutdown();
  if (how == "exit") std::exit(5);
  if (how == "_exit") _exit(6);
  if (how == "quick_exit") std::quick_exit(7);
  if (how == "throw") throw std::runtime_error("nobody catches this");
  if (how == "abort") std::abort();
  if (how == "int") {
    signal(SIGINT, SIG_DFL);  // ignored in what a shell starts in the background
    raise(SIGINT);
  }
  if (how == "kill") raise(SIGKILL);
  if (how == "wait") pause();
  return 0;
}
