// Tasks that print a lot. output_test compares what arrives here with what was printed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "manta/manta.h"

namespace {

int Talk(int task, int lines) {
  for (int i = 0; i < lines; ++i) std::printf("out %d.%d\n", task, i);
  for (int i = 0; i < lines; ++i) std::cerr << "err " << task << '.' << i << '\n';
  return getpid();
}

class Parrot {
 public:
  void Say(const std::string& text) { std::cout << text << std::endl; }
};

void TalkAndDie(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  std::fprintf(stderr, "main runs\n");
  manta::Init();
  if (mode == "lines") {
    std::vector<manta::Ref<int>> refs;
    for (int i = 0; i < 20; ++i) refs.push_back(manta::Task(Talk).SetName("talk").Remote(i, 50));
    for (int pid : manta::Get(refs)) std::printf("worker %d\n", pid);
  } else if (mode == "exit") {  // the last lines are printed while the program ends
    const auto parrot = manta::Actor<Parrot>().Remote();
    for (int i = 0; i < 100; ++i) parrot.Task(&Parrot::Say).Remote("line " + std::to_string(i));
    parrot.Task(&Parrot::Say).Remote("the last one").Get();
    return 0;  // without Shutdown
  } else if (mode == "half") {
    manta::Task([] { std::printf("no newline at the end"); }).SetName("half").Remote().Get();
  } else if (mode == "long") {
    manta::Task([](int size) { std::printf("%s\n", std::string(static_cast<std::size_t>(size), 'x').c_str()); })
        .SetName("lengthy")
        .Remote(std::atoi(argv[2]))
        .Get();
  } else if (mode == "die") {
    try {
      manta::Task(TalkAndDie).SetName("die").SetRetries(0).Remote("famous last words").Get();
    } catch (const manta::WorkerCrashedError& error) {
      std::printf("caught\n");
    }
  } else if (mode == "quiet") {
    manta::Shutdown();
    manta::Config config;
    config.show_output = false;
    manta::Init(config);
    manta::Task([] { std::printf("secret\n"); }).Remote().Get();
  }
  manta::Shutdown();
  return 0;
}
