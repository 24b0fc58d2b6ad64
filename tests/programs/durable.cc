// A job with a name, for durable_test: it calls, commits, and is killed or ends as told.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "manta/manta.h"

namespace {

int Square(int x) { return static_cast<int>(static_cast<unsigned>(x) * static_cast<unsigned>(x)); }  // of any x
std::string Text(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}
std::string WhoAmI() { return manta::CurrentContext().task_id; }
int Unlucky(int x) { throw std::runtime_error("unlucky " + std::to_string(x)); }
std::vector<std::uint64_t> Large(std::uint64_t seed) { return std::vector<std::uint64_t>(20'000, seed); }
std::vector<std::uint64_t> Next(const std::vector<std::uint64_t>& before) {
  std::vector<std::uint64_t> after = before;
  for (std::uint64_t& x : after) ++x;
  return after;
}
std::string LastOf(const std::vector<std::uint64_t>& values) {
  return manta::CurrentContext().task_id + " " + std::to_string(values.back());
}
std::string ByRef(const manta::Ref<int>& number) {
  return manta::CurrentContext().task_id + " " + std::to_string(number.Get());
}
int Tree(int depth) {
  if (depth == 0) return 1;
  const manta::Ref<int> left = manta::Task(Tree).Remote(depth - 1);
  const manta::Ref<int> right = manta::Task(Tree).Remote(depth - 1);
  return left.Get() + right.Get();
}
std::uint64_t SumOf(const std::vector<std::uint64_t>& values) { return values.size() * values.at(0); }
int Append(const std::string& file, int value) {
  std::FILE* out = std::fopen(file.c_str(), "a");
  std::fprintf(out, "%d\n", value);
  std::fclose(out);
  return value * 10;
}

std::uint64_t LogBytes() {
  std::uint64_t bytes = 0;
  const std::filesystem::path jobs = std::filesystem::path(std::getenv("MANTA_SECRETS")) / "jobs";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(jobs)) {
    if (entry.path().extension() == ".log") bytes += entry.file_size();
  }
  return bytes;
}

// Durable values of this job that are on disk, whole or not.
std::string Kept(const std::string& job) {
  int files = 0;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(std::getenv("MANTA_SECRETS")) / "jobs" / job / "objects";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) files += entry.is_regular_file() ? 1 : 0;
  return std::to_string(files) + " files";
}

// Until there is no room for a byte more.
void Fill(const std::string& file) {
  std::FILE* out = std::fopen(file.c_str(), "a");
  std::setvbuf(out, nullptr, _IONBF, 0);
  for (std::size_t size = 1 << 20; size > 0;) {
    if (std::fwrite(std::string(size, 'x').data(), 1, size, out) != size) size /= 2;
  }
  std::fclose(out);
}

void Say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}
[[noreturn]] void SleepForEver() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void Squares(int from, int to) {
  std::vector<manta::Ref<int>> refs;
  for (int i = from; i < to; ++i) refs.push_back(manta::Task(Square).Remote(i));
  manta::Get(refs);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string name = argc > 2 ? argv[2] : "";
  Say("main runs");
  manta::Config config;
  config.address = "private";
  config.cpus = 2;
  config.job = name;
  config.keep_lineage = mode == "keep";
  config.resume = mode == "resume";
  if (mode == "oversized") config.store_bytes = 64U << 20;
  try {
    manta::Init(config);
  } catch (const manta::Error& error) {
    Say(std::string("refused: ") + error.what());
    return 3;
  }
  if (mode == "work") {
    Squares(0, 3000);
    Say("id " + manta::Task(WhoAmI).SetName("who").Remote().Get());
    for (int i = 0; i < 20; ++i) manta::Task(Text).Remote("text " + std::to_string(i), 100).Get();
    manta::Ref<std::vector<std::uint64_t>> chain = manta::Task(Large).Remote(7);
    for (int i = 0; i < 5; ++i) chain = manta::Task(Next).Remote(chain);
    Say("last " + manta::Task(LastOf).Remote(chain).Get());
    Say("ref " + manta::Task(ByRef).Remote(manta::Task(Square).Remote(12)).Get());
    manta::Task(Tree).Remote(4).Get();
    manta::Commit();
    Say("committed");
    SleepForEver();
  } else if (mode == "put") {
    const auto kept = manta::Put(std::vector<std::uint64_t>(20'000, 3), {.durable = true});
    const auto lost = manta::Put(std::vector<std::uint64_t>(20'000, 4));
    const std::uint64_t first = manta::Task(SumOf).SetName("kept").Remote(kept).Get();
    const std::uint64_t second = manta::Task(SumOf).SetName("lost").Remote(lost).Get();
    Say("sums " + std::to_string(first) + " " + std::to_string(second));
    manta::Commit();
    Say("committed");
    SleepForEver();
  } else if (mode == "alike") {
    for (int i = 0; i < 1000; ++i) manta::Task(Tree).Remote(0).Get();
    Say("done");
    SleepForEver();
  } else if (mode == "commit") {
    Squares(0, 1000);
    manta::Commit();
    Say("committed " + std::to_string(LogBytes()));
    Squares(0, 5000);
    Say("more");
    SleepForEver();
  } else if (mode == "crowd") {
    // Commits while another thread calls all the time, always the same, so that its calls are only counted.
    std::atomic<std::uint64_t> seen{0};
    std::atomic<bool> stop{false};
    std::thread other([&] {
      for (; !stop; ++seen) manta::Task(Tree).Remote(0).Get();
    });
    for (int i = 0; i < 50; ++i) {
      for (const std::uint64_t last = seen; seen < last + 50;) std::this_thread::yield();
      const std::uint64_t before = seen;
      manta::Commit();
      Say("committed " + std::to_string(before) + " " + std::to_string(LogBytes()));
    }
    stop = true;
    other.join();
    Say("more");
    SleepForEver();
  } else if (mode == "fail") {
    try {
      manta::Task(Unlucky).SetName("unlucky").Remote(13).Get();
    } catch (const manta::TaskError&) {
      Say("failed");
    }
  } else if (mode == "resume" || mode == "effects") {
    // Every task leaves a line in a file, so that a second run of it shows.
    const std::string file = argv[3];
    const int count = std::atoi(argv[4]);
    const int stop = std::atoi(argv[5]);
    int sum = 0;
    for (int i = 0; i < count; ++i) {
      if (i == stop) {
        manta::Commit();
        Say("half");
        SleepForEver();
      }
      sum += manta::Task(Append).Remote(file, i).Get();
    }
    Say("sum " + std::to_string(sum));
  } else if (mode == "oversized") {
    try {
      manta::Put(std::vector<std::uint64_t>(20U << 20, 1), {.durable = true});
      Say("taken");
    } catch (const manta::OutOfMemoryError&) {
      Say("refused " + Kept(name));
    }
    const auto small = manta::Put(std::vector<std::uint64_t>(20'000, 1), {.durable = true});
    Say("kept " + Kept(name));
  } else if (mode == "full") {
    Squares(0, 1000);
    manta::Commit();
    const std::string filler = std::string(std::getenv("MANTA_SECRETS")) + "/filler";
    Fill(filler);
    try {
      Squares(0, 100'000);
      manta::Commit();
      Say("committed");
    } catch (const manta::IoError& error) {
      Say(std::string("no room to commit: ") + error.what());
    }
    try {
      manta::Put(std::vector<std::uint64_t>((1U << 20) / 8 - 1, 1), {.durable = true});
      Say("put");
    } catch (const manta::IoError& error) {
      Say(std::string("no room to put: ") + error.what());
    }
    std::filesystem::remove(filler);
    for (int i = 0;; ++i) {  // the daemon looks for room now and then
      try {
        manta::Commit();
        break;
      } catch (const manta::IoError&) {
        if (i == 1000) throw;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    const auto kept = manta::Put(std::vector<std::uint64_t>((1U << 20) / 8 - 1, 1), {.durable = true});
    Squares(0, 1000);
    Say("there is room: kept " + Kept(name));
  } else if (mode == "uncommitted") {
    try {
      manta::Commit();
    } catch (const manta::InvalidError& error) {
      Say(std::string("invalid: ") + error.what());
    }
    try {
      manta::Put(1, {.durable = true});
    } catch (const manta::InvalidError& error) {
      Say(std::string("invalid: ") + error.what());
    }
  } else {
    Squares(0, 100);
  }
  manta::Shutdown();
  Say("ended");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
