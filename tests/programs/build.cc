// A program whose task says which build it is of. With a path: not before that file is there. clusters_test changes the
// program meanwhile.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "manta/manta.h"

namespace {

const char* volatile name = "build 1";

std::string Build() { return name; }

}  // namespace

int main(int argc, char** argv) {
  manta::Init();
  if (argc > 1) {
    std::puts("ready");
    std::fflush(stdout);
    while (access(argv[1], F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::puts(manta::Task(Build).SetResource("gold", 1).Remote().Get().c_str());
  return 0;
}
