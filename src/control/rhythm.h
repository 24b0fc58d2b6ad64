// Rhythm says when a loop should look for what comes next instead of sleeping: a storage that answers about as fast as
// a thread falls asleep and wakes, and a client who asks one thing after another. What came late the last time is not
// looked for the next time, so a slow disk or a client who thinks costs no processor time.
//
// Pure: the storage gives its answers, in microseconds, to Loop::Expect.
#pragma once

#include <cstdint>

namespace manta::control {

class Rhythm {
 public:
  // `soon_us`: within which the storage answers when it is quick. 0: nothing is looked for.
  explicit Rhythm(std::int64_t soon_us) : soon_us_(soon_us) {}

  // A request goes to the storage; how long to look for the answer. `first`: nothing else was under way.
  [[nodiscard]] std::int64_t Asked(std::int64_t now_us, bool first) {
    if (first) asks_soon_ = now_us - idle_since_ < kNextUs;
    return answers_soon_ ? soon_us_ : 0;
  }
  // The last answer of those under way, to what was asked then; how long to look for the next request.
  [[nodiscard]] std::int64_t Answered(std::int64_t now_us, std::int64_t asked_us) {
    idle_since_ = now_us;
    answers_soon_ = now_us - asked_us < soon_us_;
    return asks_soon_ && soon_us_ > 0 ? kNextUs : 0;
  }

 private:
  // Whoever asks one thing after another asks again as soon as it has woken up with the answer.
  static constexpr std::int64_t kNextUs = 100;

  const std::int64_t soon_us_;
  bool answers_soon_ = true;
  bool asks_soon_ = false;
  std::int64_t idle_since_ = 0;
};

}  // namespace manta::control
