// A driver whose task has a race. ThreadSanitizer ends the worker that finds it, and the engine runs the task again,
// until an attempt goes without: the driver succeeds. scripts/reports must tell of the race all the same.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include "manta/manta.h"

namespace {

// Races only in its first attempt, which leaves the file behind for the second.
int Race(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return 1;
  std::fclose(std::fopen(path.c_str(), "w"));
  int count = 0;
  std::thread other([&count] { ++count; });
  ++count;
  other.join();
  return count;
}

}  // namespace

int main() {
  manta::Config config;
  config.cpus = 1;
  manta::Init(config);
  const std::string path = "/tmp/racer-" + std::to_string(getpid());
  const int count = manta::Task(Race).Remote(path).Get();
  unlink(path.c_str());
  return count == 1 ? 0 : 1;
}
