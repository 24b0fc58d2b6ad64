// A driver that ends well although its worker had a fault that a sanitizer sees. `scripts/leftovers selftest` runs it
// to prove that such a report fails a test.
#include <climits>
#include <string>
#include <thread>
#include <vector>

#include "manta/manta.h"

extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace {

int Fault(const std::string& what) {
  if (what == "overflow") {
    const std::vector<char> bytes(10);
    const volatile char* past = bytes.data() + bytes.size();
    return *past;
  }
  if (what == "leak") {
    char* volatile bytes = new char[10];
    bytes = nullptr;
    static_cast<void>(bytes);
    return __lsan_do_recoverable_leak_check();
  }
  if (what == "race") {
    int count = 0;
    std::thread other([&count] { ++count; });
    ++count;
    other.join();
    return count;
  }
  volatile int most = INT_MAX;  // "undefined"
  return most + 1;
}

}  // namespace

int main(int, char** argv) {
  manta::Config config;
  config.cpus = 1;
  config.store_bytes = 64 << 20;
  manta::Init(config);
  try {
    manta::Task(Fault).SetRetries(1).Remote(std::string(argv[1])).Get();
  } catch (const manta::WorkerCrashedError&) {
  }
  return 0;
}
