// For the store's tests: a keeper, processes with their pin boards, and links between them, all in one
// process and on the real clock.
#pragma once

#include <fcntl.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "store/client.h"
#include "store/keeper.h"

namespace manta::store {

// A store that is soon full and does not keep a test waiting.
inline KeeperConfig Small(std::uint64_t capacity) {
  KeeperConfig config;
  config.capacity = capacity;
  config.huge = false;
  config.wait_us = 50'000;
  config.disk_after_us = 5'000;
  return config;
}

class TestNode {
 public:
  explicit TestNode(KeeperConfig config) : keeper_(std::move(config)) {}

  // Calls f(keeper, now) as the daemon's loop would: one at a time.
  template <typename F>
  auto With(F&& f) {
    const std::lock_guard lock(mutex_);
    return f(keeper_, base::NowMicros());
  }
  void Tick() {
    With([](Keeper& keeper, std::int64_t now) { keeper.Tick(now); });
  }
  KeeperStats stats() {
    return With([](Keeper& keeper, std::int64_t) { return keeper.stats(); });
  }

 private:
  std::mutex mutex_;
  Keeper keeper_;
};

// A process of the node: its board, its link and its client. Kill() is kill -9.
class TestProcess : public KeeperLink {
 public:
  TestProcess(TestNode& node, ProcessId id) : node_(node), id_(id), board_(PinBoard::kBytes / 8) {
    node_.With([&](Keeper& keeper, std::int64_t) { keeper.ProcessJoined(id_, board()); });
    client_.emplace(*this, id_, board());
  }
  ~TestProcess() override {
    if (!dead_) Kill();
  }

  StoreClient& client() { return *client_; }
  std::byte* board() { return reinterpret_cast<std::byte*>(board_.data()); }
  [[nodiscard]] ProcessId id() const { return id_; }
  void Kill(const Keeper::KeepPredicate& keep = [](const Id&) { return false; }) {
    dead_ = true;
    node_.With([&](Keeper& keeper, std::int64_t now) { keeper.ProcessDied(id_, keep, now); });
  }

  Result<LentSegment> Request(std::uint64_t bytes) override {
    ++requests;
    struct Answer {
      std::optional<Result<LentSegment>> lent;
    };
    const auto answer = std::make_shared<Answer>();
    node_.With([&](Keeper& keeper, std::int64_t now) {
      keeper.SegmentRequest(id_, bytes, now, [answer](Result<Keeper::Loan> loan) {
        if (!loan.ok()) {
          answer->lent.emplace(loan.status());
          return;
        }
        LentSegment lent;
        lent.segment = loan->segment;
        lent.bytes = loan->bytes;
        lent.whole = loan->whole;
        lent.fd.Reset(fcntl(loan->fd, F_DUPFD_CLOEXEC, 0));
        answer->lent.emplace(std::move(lent));
      });
    });
    Await([&] { return answer->lent.has_value(); });
    return std::move(*answer->lent);
  }
  Result<OpenedSegment> Open(std::uint32_t segment) override {
    ++opens;
    return node_.With([&](Keeper& keeper, std::int64_t) -> Result<OpenedSegment> {
      Result<Keeper::Opened> opened = keeper.OpenSegment(segment);
      if (!opened.ok()) return opened.status();
      return OpenedSegment{opened->segment, opened->bytes, opened->offset, std::move(opened->fd)};
    });
  }
  Result<Place> Restore(const Id& object) override {
    ++restores;
    const auto answer = std::make_shared<std::optional<Result<Place>>>();
    node_.With([&](Keeper& keeper, std::int64_t now) {
      keeper.Restore(id_, object, now, [answer](Result<Place> place) { answer->emplace(std::move(place)); });
    });
    Await([&] { return answer->has_value(); });
    return std::move(**answer);
  }
  void Free(std::vector<Id> objects, std::vector<Place> places) override {
    ++frees;
    node_.With([&](Keeper& keeper, std::int64_t now) { keeper.FreeObjects(objects, places, now); });
  }
  void Return(std::uint32_t segment) override {
    node_.With([&](Keeper& keeper, std::int64_t now) { keeper.SegmentReturn(id_, segment, now); });
  }

  std::atomic<int> requests{0};
  std::atomic<int> opens{0};
  std::atomic<int> restores{0};
  std::atomic<int> frees{0};

 private:
  template <typename Ready>
  void Await(Ready&& ready) {
    for (;;) {
      if (node_.With([&](Keeper&, std::int64_t) { return ready(); })) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      node_.Tick();
    }
  }

  TestNode& node_;
  ProcessId id_;
  std::vector<std::uint64_t> board_;
  std::optional<StoreClient> client_;
  bool dead_ = false;
};

inline Id TestId(std::uint64_t n) { return Id{Mix(n + 1), n | 1}; }

// Bytes that tell one object from another at every place.
inline void Fill(std::byte* data, std::uint64_t size, std::uint64_t seed) {
  std::uint64_t word = seed * 0x9e3779b97f4a7c15ULL + 1;
  std::uint64_t at = 0;
  for (; at + 8 <= size; at += 8, word += 0x100000001b3ULL) std::memcpy(data + at, &word, 8);
  for (; at < size; ++at) data[at] = static_cast<std::byte>(seed);
}
inline bool Holds(const std::byte* data, std::uint64_t size, std::uint64_t seed) {
  std::uint64_t word = seed * 0x9e3779b97f4a7c15ULL + 1;
  std::uint64_t at = 0;
  for (; at + 8 <= size; at += 8, word += 0x100000001b3ULL) {
    if (std::memcmp(data + at, &word, 8) != 0) return false;
  }
  for (; at < size; ++at) {
    if (data[at] != static_cast<std::byte>(seed)) return false;
  }
  return true;
}

// Stores an object whose content follows from `n`.
inline Result<Place> PutTest(TestProcess& process, std::uint64_t n, std::uint64_t size, ProcessId owner = 0) {
  Result<Allocation> room = process.client().Allocate(TestId(n), owner == 0 ? process.id() : owner, size);
  if (!room.ok()) return room.status();
  Fill(room->data, size, n);
  return process.client().Seal(*room);
}
// Opens, compares and closes it.
inline Status CheckTest(TestProcess& process, std::uint64_t n, Place* place) {
  Result<View> view = process.client().Open(TestId(n), *place, place);
  if (!view.ok()) return view.status();
  const bool same = view->size == place->size && Holds(view->data, view->size, n);
  process.client().Close(*view);
  return same ? Status() : Status(Code::kCorrupt, Cat("object ", n, " has other bytes"));
}

}  // namespace manta::store
