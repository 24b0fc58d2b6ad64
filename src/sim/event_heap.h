// EventHeap holds what will happen, soonest first: 16-byte values in a heap of four children a node, which for tens of
// thousands of pending events stays in the second-level cache. Events of the same instant come out in an order that is
// arbitrary but the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace manta::sim {

struct Event {
  std::int64_t at_ns = 0;
  std::uint32_t kind = 0;
  std::uint32_t what = 0;
};

class EventHeap {
 public:
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  [[nodiscard]] const Event& top() const { return heap_.front(); }

  void Push(const Event& event) {
    heap_.push_back(event);
    std::size_t at = heap_.size() - 1;
    while (at > 0) {
      const std::size_t parent = (at - 1) / kChildren;
      if (heap_[parent].at_ns <= event.at_ns) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }
  void Pop() {
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) Sink(last);
  }
  // Pop and Push in one: what most events do, since a worker that ends a task begins the next.
  void Replace(const Event& event) { Sink(event); }

 private:
  static constexpr std::size_t kChildren = 4;

  void Sink(const Event& event) {
    const std::size_t size = heap_.size();
    std::size_t at = 0;
    for (;;) {
      const std::size_t first = at * kChildren + 1;
      if (first >= size) break;
      const std::size_t end = first + kChildren < size ? first + kChildren : size;
      std::size_t least = first;
      for (std::size_t i = first + 1; i < end; ++i) {
        if (heap_[i].at_ns < heap_[least].at_ns) least = i;
      }
      if (heap_[least].at_ns >= event.at_ns) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace manta::sim
