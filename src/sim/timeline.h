// Timeline is the virtual time of one simulated run: what happens when, and a hash of what happened. Work of the same
// instant comes in an order that is arbitrary but the same in every run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sim/event_heap.h"
#include "types/id.h"

namespace manta::sim {

class Timeline {
 public:
  [[nodiscard]] std::int64_t now_us() const { return now_us_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }
  [[nodiscard]] std::uint64_t trace() const { return trace_; }

  void After(std::int64_t delay_us, std::function<void()> what) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(work_.size());
      work_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    work_[slot] = std::move(what);
    heap_.Push({now_us_ + delay_us, 0, slot});
  }
  // Until `done`, which is asked before each event, or until that time. What `done` says in the end.
  template <typename Done>
  bool RunUntil(std::int64_t until_us, const Done& done) {
    while (!heap_.empty() && heap_.top().at_ns <= until_us) {
      if (done()) return true;
      const Event event = heap_.top();
      heap_.Pop();
      now_us_ = event.at_ns;
      const std::function<void()> what = std::move(work_[event.what]);
      work_[event.what] = nullptr;
      free_.push_back(event.what);
      ++events_;
      what();
    }
    now_us_ = std::max(now_us_, until_us);
    return done();
  }
  void Trace(std::uint64_t word) { trace_ = Mix(trace_ ^ word) + static_cast<std::uint64_t>(now_us_); }

 private:
  std::int64_t now_us_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t trace_ = 0;
  EventHeap heap_;
  std::vector<std::function<void()>> work_;
  std::vector<std::uint32_t> free_;
};

}  // namespace manta::sim
