// Figure 9: what one client writes into the object store, by size: bytes a second of large objects and puts a second of
// small ones, from one thread and from two, beside a plain copy into memory that is there already.
#include <manta/manta.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "figure.h"
#include "harness.h"

namespace {

using paper::Figure;
using paper::Number;

// Calls a second that all threads make together; `call(thread)`, again and again.
template <typename F>
double PerSecond(double seconds, std::size_t threads, F call) {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> all;
  double begin = 0;
  std::atomic<bool> go{false};
  for (std::size_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      call(t);  // touches its memory
      ++ready;
      while (!go.load()) std::this_thread::yield();
      const double end = begin + seconds;
      do {
        call(t);
        ++count;
      } while (bench::Now() < end);
    });
  }
  while (ready.load() < threads) std::this_thread::yield();
  begin = bench::Now();
  go = true;
  for (std::thread& one : all) one.join();
  return static_cast<double>(count.load()) / (bench::Now() - begin);
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig9", "Figure 9: object store, write throughput and puts a second of one client");
  manta::Config config;
  config.address = "private";
  config.store_bytes = figure.Pick<std::uint64_t>(6ULL << 30, 256ULL << 20);
  const double seconds = figure.Pick(0.5, 0.02);
  std::vector<std::pair<std::string, std::size_t>> sizes{
      {"1 KB", 1'000},       {"10 KB", 10'000},       {"100 KB", 100'000},    {"1 MB", 1'000'000},
      {"10 MB", 10'000'000}, {"100 MB", 100'000'000}, {"1 GB", 1'000'000'000}};
  if (figure.quick()) sizes.resize(4);
  const std::size_t largest = sizes.back().second;
  std::vector<std::vector<std::uint64_t>> from(2, std::vector<std::uint64_t>(largest / 8, 1));
  std::vector<std::vector<std::uint64_t>> into(2, std::vector<std::uint64_t>(largest / 8, 2));
  manta::Init(config);
  std::vector<std::vector<std::string>> rows{
      {"size", "threads", "puts/s", "GB/s", "plain copy GB/s", "of it %", "the paper (16 cores)"}};
  paper::Series puts[2] = {{"Put, one thread", paper::Mark::kMeasured, {}},
                           {"Put, two threads", paper::Mark::kMeasured, {}}};
  paper::Series copies{"plain copy, one thread", paper::Mark::kMeasured, {}};
  paper::Series rates{"one thread", paper::Mark::kMeasured, {}};
  for (const auto& [name, bytes] : sizes) {
    for (const std::size_t threads : {1U, 2U}) {
      std::vector<manta::Ref<manta::Array<std::uint64_t>>> kept(threads);
      std::vector<double> put;
      std::vector<double> copy;
      for (int round = 0; round < 5; ++round) {
        put.push_back(PerSecond(seconds, threads, [&, size = bytes](std::size_t t) {
          kept[t] = manta::Put(std::span<const std::uint64_t>(from[t]).first(size / 8));
        }));
        copy.push_back(PerSecond(seconds / 2, threads, [&, size = bytes](std::size_t t) {
          std::memcpy(into[t].data(), from[t].data(), size);
        }));
      }
      const double rate = bench::Percentile(put, 0.5);
      const double plain = bench::Percentile(copy, 0.5);
      const double scale = static_cast<double>(bytes) / 1e9;
      rows.push_back({name, std::to_string(threads), Number(rate), Number(rate * scale), Number(plain * scale),
                      Number(100 * rate / plain),
                      bytes == 1'000         ? "18,000 puts/s"
                      : bytes >= 100'000'000 ? "over 15 GB/s with 8 threads"
                                             : ""});
      puts[threads - 1].points.emplace_back(static_cast<double>(bytes), rate * scale);
      if (threads == 1) copies.points.emplace_back(static_cast<double>(bytes), plain * scale);
      if (threads == 1) rates.points.emplace_back(static_cast<double>(bytes), rate);
    }
  }
  manta::Shutdown();
  figure.Table(rows);
  figure.Say(
      "Medians of five rounds that take turns. A put here is known to its owner alone until somebody else gets its "
      "Ref; the paper's goes to the store's process each time.");
  const double first = static_cast<double>(sizes.front().second);
  const double last = static_cast<double>(largest);
  figure.Draw(
      {.title = "Write throughput of one client",
       .note = {},
       .x = {"object size", true, "B"},
       .y = {"GB/s", false, ""},
       .series = {puts[0],
                  puts[1],
                  copies,
                  {"the paper: over 15 GB/s, 8 threads of 16 cores", paper::Mark::kPaper, {{1e8, 15}, {1e9, 15}}}}});
  figure.Draw({.title = "Puts a second of one client",
               .note = {},
               .x = {"object size", true, "B"},
               .y = {"puts/s", true, ""},
               .series = {rates,
                          {"the paper: 18,000 /s for small objects",
                           paper::Mark::kPaper,
                           {{first, 18'000}, {std::min(last, 1e4), 18'000}}}}},
              "puts");
}

}  // namespace

int main(int argc, char** argv) { return paper::Main(argc, argv, Measure); }
