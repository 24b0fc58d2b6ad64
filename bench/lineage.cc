#include "lineage.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "lineage/record.h"
#include "node/lineage_keeper.h"
#include "nodes.h"
#include "shm/arena.h"
#include "work.h"

namespace bench {
namespace {

using manta::Id;
using manta::Result;
using manta::Status;

constexpr manta::ProcessId kOwner = 5;
const Id kJob{1, 3};

void Check(const Status& status) {
  if (!status.ok()) Fail(status.message());
}

// One owner and the keeper of its node.
class Owner {
 public:
  Owner() : area_(Made(manta::shm::NodeArea::Create(2))), arena_(Made(manta::shm::Arena::Create())) {
    manta::lineage::JobNote note;
    note.job = kJob;
    bool resumed = false;
    Check(keeper_.AddJob(kJob, Made(manta::lineage::JobFolder::Open(folder_.path(), "bench", false, &note, &resumed)),
                         0, 1, false));
    Check(keeper_.AddOwner(kJob, kOwner, arena_.fd()));
  }

  void Call(std::uint64_t index, std::span<const std::byte> arguments, std::span<const std::byte> answer) {
    encoder_.Value(encoder_.Task({kJob, 0, index}, header_, "", {}, arguments), 0, answer);
    if (!encoder_.settled()) return;
    if (encoder_.waiting()) AwaitRoom();
    if (bell().sleeping.load(std::memory_order_relaxed) != 0) bell().Ring();
  }
  void Settle() { encoder_.Settle(); }
  // All of it is on disk.
  void Commit() {
    Settle();
    const std::uint32_t mine = memory().asked.fetch_add(1) + 1;
    bell().Rouse();
    while (memory().done.load() != mine) Pause();
  }

 private:
  template <typename T>
  static T Made(Result<T> result) {
    Check(result.status());
    return std::move(*result);
  }
  manta::shm::Doorbell& bell() { return area_.bell(manta::kNoProcess); }
  manta::shm::LineageMemory& memory() {
    return *reinterpret_cast<manta::shm::LineageMemory*>(arena_.at(manta::shm::kLineageOffset));
  }
  void Pause() {
    if (memory().error.load() != 0) Fail("the disk takes no lineage");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void AwaitRoom() {
    bell().Rouse();
    while (!encoder_.Flush()) Pause();
  }

  TemporaryFolder folder_;
  manta::shm::NodeArea area_;
  manta::shm::Arena arena_;
  manta::node::LineageKeeper keeper_{bell()};
  manta::lineage::Encoder encoder_{&memory()};
  manta::shm::SpecHeader header_{};
};

}  // namespace

double LineagePerSecond(double seconds, bool plain) {
  Owner owner;
  std::mt19937_64 random(1);
  std::uint64_t arguments[2] = {manta::shm::ItemWord(manta::shm::ItemKind::kValue, sizeof(std::uint64_t)), 0};
  std::uint64_t answer[2] = {};
  std::uint64_t count = 0;
  const double begin = Now();
  while (Now() - begin < seconds) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      ++count;
      if (plain) {
        arguments[1] = count;
        const Reply reply{count, count, 4711};
        owner.Call(count, std::as_bytes(std::span(arguments)), std::as_bytes(std::span(&reply, 1)));
      } else {
        for (std::uint64_t* word : {arguments, arguments + 1, answer, answer + 1}) *word = random();
        owner.Call(count, std::as_bytes(std::span(arguments)), std::as_bytes(std::span(answer)));
      }
    }
    owner.Settle();
  }
  owner.Commit();
  return static_cast<double>(count) / (Now() - begin);
}

}  // namespace bench
