// The ring's two ends as threads, as an owner and its daemon use them.
#include <gtest/gtest.h>

#include <thread>

#include "lineage/test_ring.h"

namespace manta::lineage {
namespace {

class Counter : public BlockSink {
 public:
  void OnBlock(ProcessId) override {}
  void OnTask(const TaskRecord& task) override {
    in_order &= task.id == DeriveId(Id{7, 9}, 0, tasks);
    ++tasks;
  }
  void OnOutcome(const OutcomeRecord& outcome) override { in_order &= outcome.sequence == ++outcomes; }
  std::uint64_t tasks = 0;
  std::uint64_t outcomes = 0;
  bool in_order = true;
};

TEST(LineageRing, AReaderThatComesNowAndThenMissesNothing) {
  TestRing ring;
  constexpr std::uint64_t kCalls = 300'000;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    Encoder encoder(ring.memory());
    const std::vector<std::byte> arguments(64, std::byte{3});
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      const std::uint64_t sequence = encoder.Task({{7, 9}, 0, i}, HeaderOf(0), "", {}, arguments);
      std::uint64_t answer[16] = {i * 0x9e3779b97f4a7c15ULL, i};
      encoder.Value(sequence, 0, std::as_bytes(std::span(answer)));
    }
    encoder.Settle();
    while (!encoder.Flush()) std::this_thread::yield();
    done.store(true);
  });
  Counter counter;
  while (!done.load()) {
    ring.Decode(counter);
    std::this_thread::yield();
  }
  writer.join();
  ring.Decode(counter);
  EXPECT_EQ(counter.tasks, kCalls);
  EXPECT_EQ(counter.outcomes, kCalls);
  EXPECT_TRUE(counter.in_order);
}

}  // namespace
}  // namespace manta::lineage
