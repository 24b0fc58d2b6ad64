// A driver with little memory, one of whose tasks wants more than there is. It prints what it is told, and goes on.
//   hungry addresses|data MEGABYTES      limits itself
//   hungry FOLDER MEGABYTES              joins that control group, which has the limit
// limits_test reads it.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "manta/manta.h"

namespace {

std::size_t Eat(std::size_t bytes) {
  const std::vector<char> food(bytes, 'x');  // touched
  return food.size();
}

bool Limit(const std::string& what, std::size_t bytes) {
  const rlimit limit{bytes, bytes};
  if (what == "addresses") return setrlimit(RLIMIT_AS, &limit) == 0;
  if (what == "data") return setrlimit(RLIMIT_DATA, &limit) == 0;
  std::ofstream members(what + "/cgroup.procs");
  return static_cast<bool>(members << getpid() << std::flush);
}

}  // namespace

int main(int, char** argv) {
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10) << 20;
  if (!Limit(argv[1], bytes)) {
    std::perror("cannot limit myself");
    return 2;
  }
  manta::Config config;
  config.cpus = 2;
  config.store_bytes = 64 << 20;
  manta::Init(config);
  auto eat = manta::Task(Eat);
  eat.SetRetries(1);
  for (int round = 0; round < 2; ++round) {
    try {
      std::printf("ate %zu\n", eat.Remote(bytes + (bytes >> 1)).Get(std::chrono::seconds(60)));
    } catch (const manta::OutOfMemoryError& error) {
      std::printf("out of memory: %s\n", error.what());
    } catch (const manta::Error& error) {
      std::printf("WRONG %d: %s\n", static_cast<int>(error.code()), error.what());
    }
    std::printf("then ate %zu\n", eat.Remote(1 << 20).Get(std::chrono::seconds(60)));
  }
  std::fflush(stdout);
  manta::Shutdown();
  return 0;
}
