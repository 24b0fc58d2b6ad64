// A driver that takes away from itself what Manta needs and prints what it is told. limits_test reads it.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "manta/manta.h"

namespace {

struct Holder {
  int One() { return 1; }
};

void Limit(int what, rlim_t most) {
  const rlimit limit{most, most};
  if (setrlimit(what, &limit) != 0) std::perror("setrlimit");
}

void Work() {
  manta::Config config;
  config.cpus = 2;
  config.store_bytes = 64 << 20;
  manta::Init(config);
  std::vector<manta::Ref<int>> refs;
  for (int i = 0; i < 100; ++i) refs.push_back(manta::Task([](int x) { return x; }).Remote(i));
  manta::Get(refs, std::chrono::seconds(20));
  std::vector<manta::ActorHandle<Holder>> actors;
  for (int i = 0; i < 30; ++i) {
    actors.push_back(manta::Actor<Holder>().Remote());
    actors.back().Task(&Holder::One).Remote().Get(std::chrono::seconds(20));
  }
  std::vector<manta::Ref<std::string>> objects;
  for (int i = 0; i < 30; ++i) {
    objects.push_back(manta::Put(std::string(4 << 20, 'x')));
    if (objects.back().Get().size() != 4U << 20) std::printf("WRONG\n");
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  const rlim_t most = std::strtoull(argv[2], nullptr, 10);
  if (what == "descriptors") Limit(RLIMIT_NOFILE, most);
  if (what == "addresses") Limit(RLIMIT_AS, most << 20);
  if (what == "processes") Limit(RLIMIT_NPROC, most);
  if (what == "filesize") Limit(RLIMIT_FSIZE, most << 20);
  try {
    Work();
    std::printf("worked\n");
  } catch (const manta::Error& error) {
    std::printf("error %d: %s\n", static_cast<int>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    std::printf("bad_alloc\n");
  }
  std::fflush(stdout);
  manta::Shutdown();
  return 0;
}
