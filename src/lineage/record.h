// Lineage as bytes: one stream per owner, in which every call stands with its code and arguments, and later what came
// of it. Written at the full rate of calls, so records are small and made in a few nanoseconds.
//
// How they get small. Ids are not written: they are derived from the caller and the number of the call, which is
// mostly one more than the last. Code is written once and then named by a number. Arguments and values are words
// that are written as what differs from what was expected (Series), without leading zeros. Calls and answers in which
// nothing does are only counted: a run of them is one record, which says how many.
//
// A stream consists of chapters, which a reader can begin with: nothing in them refers to what stands before, but for
// the sequence numbers of calls, which go on.
//
// Arguments are those of the spec (shm/spec.h): small values in it, large ones by their name. Values up to 4 KB are
// whole, of larger ones there is the size.
//
// Encoder and Decoder are pure; neither locks. The decoder trusts nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shm/lineage_ring.h"
#include "shm/spec.h"
#include "types/failure.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::lineage {

// The code of a call: SpecHeader without what is different for each.
struct Function {
  shm::SpecHeader header;  // id, entry, generation, bytes and digest are 0
  std::string name;
  Id actor;  // whose method it is

  [[nodiscard]] bool Is(const shm::SpecHeader& h, std::string_view its_name, const Id& its_actor) const {
    return header.target == h.target && header.trampoline == h.trampoline && header.flags == h.flags &&
           header.returns == h.returns && header.module == h.module && header.target_module == h.target_module &&
           header.adjust == h.adjust && header.match == h.match && actor == its_actor && name == its_name;
  }
  bool operator==(const Function& other) const { return Is(other.header, other.name, other.actor); }
};

enum class OutcomeKind : std::uint8_t { kValue = 0, kStored = 1, kFailed = 2 };

// What a reader is told.
struct TaskRecord {
  std::uint64_t sequence = 0;  // in its stream; from 1
  CallOrigin origin;
  Id id;
  const Function* function = nullptr;    // until the next chapter
  std::span<const std::byte> arguments;  // items as in a spec; until the next record
  bool whole = true;                     // false: they were too many to be written down
};
struct OutcomeRecord {
  std::uint64_t sequence = 0;  // of the call
  std::uint32_t index = 0;     // which return
  OutcomeKind kind = OutcomeKind::kValue;
  std::span<const std::byte> value;  // kValue; until the next record
  std::uint64_t size = 0;            // of the value
  Code code = Code::kOk;             // kFailed
  std::string_view message;
};
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void OnTask(const TaskRecord& task) = 0;
  virtual void OnOutcome(const OutcomeRecord& outcome) = 0;
};

// One word of calls or answers of some kind, one after another: the next one is expected to be as the last, or as many
// more as it was twice before.
struct Series {
  std::uint64_t next = 0;
  std::uint64_t last = 0;
  std::uint64_t step = 0;

  void Advance(std::uint64_t word) {
    const std::uint64_t more = word - last;
    next = more == step ? word + more : word;
    step = more;
    last = word;
  }
  // What is expected after so many that were as expected.
  [[nodiscard]] std::uint64_t After(std::uint64_t more) const { return next + more * (next - last); }
  // So many were as expected.
  void Continue(std::uint64_t more) {
    step = next - last;
    last = After(more - 1);
    next = last + step;
  }
};
using Words = std::vector<Series>;

inline constexpr std::size_t kFewWords = 8;      // of what may be as expected
inline constexpr std::uint64_t kMostRun = 8192;  // so that few damaged bytes are not read as a billion calls

// The last bytes of some, fewer than eight, as a word.
inline std::uint64_t PartialWord(const std::byte* end, std::size_t bytes, std::size_t all) {
  std::uint64_t word = 0;
  if (all >= 8) {
    std::memcpy(&word, end - 8, 8);
    return word >> (8 * (8 - bytes));
  }
  for (std::size_t i = bytes; i-- > 0;) word = word << 8 | static_cast<std::uint64_t>(*(end - bytes + i));
  return word;
}
// Are these words as expected after so many that were? Nothing changes: the words are told when the run is written,
// which spares three stores for each of them.
inline bool Continues(std::span<const std::byte> bytes, const Series* series, std::uint64_t run) {
  const std::size_t whole = bytes.size() / 8;
  const std::size_t rest = bytes.size() % 8;
  std::uint64_t word = 0;
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i < whole; ++i) {
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    differs |= word ^ series[i].After(run);
  }
  if (rest != 0) differs |= PartialWord(bytes.data() + bytes.size(), rest, bytes.size()) ^ series[whole].After(run);
  return differs == 0;
}

class Encoder {
 public:
  explicit Encoder(shm::LineageMemory* ring) : ring_(ring) {}

  // A call; its sequence number. `arguments` as they stand in the spec.
  std::uint64_t Task(const CallOrigin& origin, const shm::SpecHeader& header, std::string_view name, const Id& actor,
                     std::span<const std::byte> arguments) {
    if (!IsExpected(origin, header, name, actor, arguments)) return PutTask(origin, header, name, actor, arguments);
    ++next_.index;
    if (++calls_ == kMostRun) Settle();
    return ++sequence_;
  }
  void Value(std::uint64_t sequence, std::uint32_t index, std::span<const std::byte> value) {
    if (sequence != answered_ + 1 || index != 0 || value.size() != expected_value_ ||
        !Continues(value, last_value_.data(), answers_)) {
      return PutValue(sequence, index, value);
    }
    ++answered_;
    if (++answers_ == kMostRun) Settle();
  }
  void Stored(std::uint64_t sequence, std::uint32_t index, std::uint64_t size);
  void Failed(std::uint64_t sequence, std::uint32_t index, const Failure& failure);

  // Writes down what was only counted. Nobody else sees it before.
  void Settle();
  [[nodiscard]] bool settled() const { return calls_ + answers_ == 0; }
  // Records that found no room in the ring wait here. True: none does (any more).
  bool Flush();
  [[nodiscard]] bool waiting() const { return !waiting_.empty(); }
  [[nodiscard]] shm::LineageMemory& memory() { return ring_.memory(); }

 private:
  std::byte* Begin(std::size_t most);
  void End(const std::byte* end);
  // Of calls, and of answers if told.
  void PutRun(bool answers);
  [[nodiscard]] bool IsExpected(const CallOrigin& origin, const shm::SpecHeader& header, std::string_view name,
                                const Id& actor, std::span<const std::byte> arguments) const {
    return expected_ != nullptr && origin.index == next_.index && origin.path == next_.path &&
           origin.parent == next_.parent && expected_->function.Is(header, name, actor) &&
           arguments.size() == expected_arguments_ && Continues(arguments, expected_->last.data(), calls_);
  }
  std::uint64_t PutTask(const CallOrigin& origin, const shm::SpecHeader& header, std::string_view name, const Id& actor,
                        std::span<const std::byte> arguments);
  void PutValue(std::uint64_t sequence, std::uint32_t index, std::span<const std::byte> value);
  [[nodiscard]] bool ChapterIsFull() const { return written_ >= chapter_ends_ || sequence_ >= chapter_last_; }
  void NewChapter();
  std::uint32_t NumberOf(const shm::SpecHeader& header, std::string_view name, const Id& actor);
  void OutcomeHead(std::byte** at, OutcomeKind kind, std::uint64_t sequence, std::uint32_t index);

  shm::LineageWriter ring_;
  std::deque<std::string> waiting_;  // records
  std::vector<std::byte> scratch_;   // the record being written, if not in the ring
  bool in_ring_ = false;
  std::byte* begin_ = nullptr;

  std::uint64_t written_ = 0;       // bytes of the stream, also of those that wait
  std::uint64_t chapter_ends_ = 0;  // when `written_` gets there, …
  std::uint64_t chapter_last_ = 0;  // … or `sequence_`
  std::uint64_t sequence_ = 0;      // of the last call
  // As expected, and not written yet. No answer is written before its call, but calls may be before answers.
  std::uint64_t calls_ = 0;
  std::uint64_t answers_ = 0;
  // State of the chapter.
  CallOrigin next_;             // the next call, if it is as expected
  std::uint64_t answered_ = 0;  // the last sequence that had an outcome
  std::uint32_t function_ = 0;  // of the last call
  struct Known {
    Function function;
    Words last;  // arguments
  };
  std::vector<std::unique_ptr<Known>> functions_;
  static constexpr std::size_t kNoSize = ~std::size_t{0};
  Known* expected_ = nullptr;                 // of the last call; none: nothing is expected
  std::size_t expected_arguments_ = kNoSize;  // bytes that may be as expected
  std::size_t expected_value_ = kNoSize;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_hash_;
  struct Recent {
    std::uint64_t hash = 0;
    std::uint32_t number = 0;
  };
  Recent recent_[64];
  Words last_value_;
};

class Decoder {
 public:
  // Whole records of one stream. `chapter`: they begin one. kCorrupt: they make no sense; what came before was told.
  Status Read(std::span<const std::byte> bytes, bool chapter, Sink& sink);
  // Something is missing: nothing is read until a chapter begins.
  void Lose() { lost_ = true; }
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  struct Known {
    Function function;
    Words last;
  };
  // The run's next call and answer.
  void NextTask(Sink& sink);
  void NextOutcome(Sink& sink);

  bool lost_ = true;
  CallOrigin next_;
  std::uint64_t sequence_ = 0;
  std::uint64_t answered_ = 0;
  std::uint32_t function_ = 0;
  std::vector<std::unique_ptr<Known>> functions_;
  Words last_value_;
  std::uint64_t last_size_ = 0;
  std::vector<std::byte> bytes_;
};

// A digest of a result, to be compared and shown.
[[nodiscard]] std::uint64_t DigestOf(std::span<const std::byte> bytes);

}  // namespace manta::lineage
