#include "lineage/record.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace manta::lineage {
namespace {

constexpr std::uint64_t kChapterBytes = 1ULL << 20;
constexpr std::size_t kMostRecord = 2U << 20;  // a call with more arguments is noted without them
constexpr std::size_t kMostWords = 64;         // of what is told apart; more is written as it is
constexpr std::size_t kMostMessage = 2048;
constexpr std::uint64_t kChapterCalls = 1ULL << 20;  // their runs take hardly any bytes
constexpr std::uint32_t kVersion = 3;

// The lowest three bits of a record's first byte.
enum Tag : std::uint8_t { kChapter = 1, kContext = 2, kFunction = 3, kTask = 4, kOutcome = 5, kRun = 6 };
// Of a kRun: how many next calls of the same code, and after them values of next calls, of the same size, all words of
// which are as expected. Two bits each; kMany: a number follows.
constexpr unsigned kCallsShift = 3;
constexpr unsigned kAnswersShift = 5;
constexpr std::uint64_t kMany = 3;
// Of a kTask …
constexpr std::uint8_t kSameFunction = 8;
constexpr std::uint8_t kSkips = 16;     // calls that are no tasks, or stand elsewhere
constexpr std::uint8_t kWhole = 32;     // not: arguments are not there
constexpr std::uint8_t kSameSize = 64;  // as many words as the last of the function
// … and of a kOutcome.
constexpr std::uint8_t kNextSequence = 8;
constexpr std::uint8_t kHasIndex = 16;
constexpr std::uint8_t kKindShift = 5;  // two bits

struct FunctionBytes {  // as written
  std::uint16_t flags = 0;
  std::uint16_t name_bytes = 0;
  std::uint32_t returns = 0;
  std::uint32_t module = 0;
  std::uint32_t trampoline = 0;
  std::uint32_t target_module = 0;
  std::uint32_t adjust = 0;
  std::uint64_t target = 0;
  std::uint32_t match = 0;
  std::uint32_t unused = 0;
  Id actor;
};
static_assert(sizeof(FunctionBytes) == 56);

template <typename T>
void Put(std::byte** at, const T& value) {
  std::memcpy(*at, &value, sizeof value);
  *at += sizeof value;
}
void PutNumber(std::byte** at, std::uint64_t value) {
  while (value >= 128) {
    *(*at)++ = static_cast<std::byte>(value | 128);
    value >>= 7;
  }
  *(*at)++ = static_cast<std::byte>(value);
}
std::uint64_t ZigZag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
std::int64_t UnZigZag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Words as what differs from what `words` expect: for each two of them a byte with their lengths, then their low
// bytes. Writes up to 8 bytes beyond what it uses.
std::size_t MostPacked(std::size_t bytes) { return (bytes + 7) / 8 * 9 + 16; }
// The low bytes of what differs; how many.
inline unsigned PackWord(std::byte* to, std::uint64_t word, Series* series) {
  const std::uint64_t differs = word ^ series->next;
  series->Advance(word);
  std::memcpy(to, &differs, 8);
  return (differs != 0 ? 1U : 0U) + (63U - static_cast<unsigned>(std::countl_zero(differs | 1))) / 8;
}
inline void Pack(std::byte** at, std::span<const std::byte> bytes, Words* last) {
  const std::size_t whole = bytes.size() / 8;
  const std::size_t rest = bytes.size() % 8;
  if (last->size() < whole + (rest != 0 ? 1 : 0)) last->resize(whole + 1);
  Series* before = last->data();
  const std::byte* from = bytes.data();
  std::byte* to = *at;
  const auto next = [&] {
    std::uint64_t word = 0;
    std::memcpy(&word, from, 8);
    from += 8;
    return word;
  };
  std::size_t i = 0;
  for (; i + 2 <= whole; i += 2) {
    std::byte* lengths = to++;
    const unsigned first = PackWord(to, next(), before++);
    to += first;
    const unsigned second = PackWord(to, next(), before++);
    to += second;
    *lengths = static_cast<std::byte>(first | second << 4);
  }
  if (i < whole || rest != 0) {
    std::byte* lengths = to++;
    unsigned both = 0;
    unsigned shift = 0;
    if (i < whole) {
      both = PackWord(to, next(), before++);
      to += both;
      shift = 4;
    }
    if (rest != 0) {
      const unsigned length = PackWord(to, PartialWord(from + rest, rest, bytes.size()), before);
      to += length;
      both |= length << shift;
    }
    *lengths = static_cast<std::byte>(both);
  }
  *at = to;
}

// What Continues said of `size` bytes.
void Continue(std::uint64_t size, Words* words, std::vector<std::byte>* out) {
  const std::uint64_t count = (size + 7) / 8;
  if (words->size() < count) words->resize(count);
  out->resize(8 * count);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(out->data() + 8 * i, &(*words)[i].next, 8);
    (*words)[i].Continue(1);
  }
  out->resize(size);
}

std::uint64_t HashOf(const shm::SpecHeader& header, const Id& actor) {
  return Mix(header.target ^ (static_cast<std::uint64_t>(header.trampoline) << 32) ^ header.flags ^ actor.lo ^
             (static_cast<std::uint64_t>(header.returns) << 48));
}

// Reads what Put and Pack wrote, and never beyond the end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] bool more() const { return at_ < end_; }
  [[nodiscard]] bool bad() const { return bad_; }
  template <typename T>
  T Take() {
    T value{};
    if (!Has(sizeof value)) return value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::uint64_t Number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (!Has(1)) return 0;
      const auto byte = static_cast<std::uint64_t>(*at_++);
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    bad_ = true;
    return 0;
  }
  std::span<const std::byte> Bytes(std::uint64_t count) {
    if (!Has(count)) return {};
    const std::span<const std::byte> bytes(at_, count);
    at_ += count;
    return bytes;
  }
  // What Pack wrote of `size` bytes.
  void Unpack(std::uint64_t size, Words* last, std::vector<std::byte>* out) {
    const std::uint64_t count = (size + 7) / 8;
    if (last->size() < count) last->resize(count);
    out->resize(8 * count);
    for (std::uint64_t i = 0; i < count && !bad_; i += 2) {
      const auto both = static_cast<unsigned>(Take<std::byte>());
      for (std::uint64_t j = i; j < std::min(i + 2, count); ++j) {
        const unsigned length = (both >> (4 * (j - i))) & 15;
        if (length > 8 || !Has(length)) {
          bad_ = true;
          return;
        }
        std::uint64_t differs = 0;
        std::memcpy(&differs, at_, length);
        at_ += length;
        const std::uint64_t word = (*last)[j].next ^ differs;
        (*last)[j].Advance(word);
        std::memcpy(out->data() + 8 * j, &word, 8);
      }
    }
    out->resize(size);
  }

 private:
  bool Has(std::uint64_t count) {
    if (static_cast<std::uint64_t>(end_ - at_) < count) bad_ = true;
    return !bad_;
  }

  const std::byte* at_;
  const std::byte* end_;
  bool bad_ = false;
};

}  // namespace

std::uint64_t DigestOf(std::span<const std::byte> bytes) {
  std::uint64_t hash = Mix(bytes.size() + 1);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    hash = std::rotl((hash ^ word) * 0x9e3779b97f4a7c15ULL, 29);
  }
  return Mix(hash);
}

// ---- writing ----

// Room for a record of up to `most` bytes (and the 8 that Pack may write beyond).
inline std::byte* Encoder::Begin(std::size_t most) {
  in_ring_ = false;
  if (waiting_.empty()) {
    begin_ = ring_.Begin(most + 8);
    in_ring_ = begin_ != nullptr;
  }
  if (!in_ring_) {
    if (scratch_.size() < most + 8) scratch_.resize(most + 8);
    begin_ = scratch_.data();
  }
  return begin_;
}

inline void Encoder::End(const std::byte* end) {
  const auto bytes = static_cast<std::size_t>(end - begin_);
  written_ += bytes;
  if (in_ring_) return ring_.End(bytes);
  const std::span<const std::byte> record(begin_, bytes);
  if (Flush() && ring_.Put(record)) return;
  waiting_.emplace_back(reinterpret_cast<const char*>(begin_), bytes);
}

bool Encoder::Flush() {
  while (!waiting_.empty() && ring_.Put(std::as_bytes(std::span(waiting_.front())))) waiting_.pop_front();
  return waiting_.empty();
}

void Encoder::PutRun(bool with_answers) {
  const std::uint64_t calls = std::exchange(calls_, 0);
  const std::uint64_t answers = with_answers ? std::exchange(answers_, 0) : 0;
  if (calls + answers == 0) return;
  if (calls > 0) {
    for (std::size_t i = 0; i < expected_arguments_ / 8; ++i) expected_->last[i].Continue(calls);
  }
  if (answers > 0) {
    for (std::size_t i = 0; i < (expected_value_ + 7) / 8; ++i) last_value_[i].Continue(answers);
  }
  std::byte* at = Begin(24);
  *at++ =
      static_cast<std::byte>(kRun | std::min(calls, kMany) << kCallsShift | std::min(answers, kMany) << kAnswersShift);
  if (calls >= kMany) PutNumber(&at, calls);
  if (answers >= kMany) PutNumber(&at, answers);
  End(at);
}

void Encoder::Settle() {
  PutRun(true);
  if (ChapterIsFull()) expected_ = nullptr;  // the next call begins one
}

void Encoder::NewChapter() {
  Settle();
  expected_ = nullptr;
  functions_.clear();
  by_hash_.clear();
  for (Recent& recent : recent_) recent = {};
  last_value_.assign(last_value_.size(), {});
  expected_value_ = kNoSize;
  next_ = {};
  answered_ = 0;
  function_ = 0;
  chapter_ends_ = written_ + kChapterBytes;
  chapter_last_ = sequence_ + kChapterCalls;
  // Only where the ring's end is the stream's: else it stays in the middle of what waits, where nobody begins.
  if (waiting_.empty()) ring_.memory().chapter.store(written_, std::memory_order_relaxed);
  std::byte* at = Begin(32);
  Put(&at, static_cast<std::byte>(kChapter));
  PutNumber(&at, kVersion);
  PutNumber(&at, sequence_);
  End(at);
}

std::uint32_t Encoder::NumberOf(const shm::SpecHeader& header, std::string_view name, const Id& actor) {
  const std::uint64_t hash = HashOf(header, actor);
  Recent& recent = recent_[hash % 64];
  if (recent.hash == hash && recent.number < functions_.size() &&
      functions_[recent.number]->function.Is(header, name, actor)) {
    return recent.number;
  }
  std::vector<std::uint32_t>& numbers = by_hash_[hash];
  for (const std::uint32_t number : numbers) {
    if (!functions_[number]->function.Is(header, name, actor)) continue;
    recent = {hash, number};
    return number;
  }
  auto known = std::make_unique<Known>();
  known->function.header = header;
  known->function.name = name;
  known->function.actor = actor;
  FunctionBytes bytes;
  bytes.flags = header.flags;
  bytes.name_bytes = static_cast<std::uint16_t>(name.size());
  bytes.returns = header.returns;
  bytes.module = header.module;
  bytes.trampoline = header.trampoline;
  bytes.target_module = header.target_module;
  bytes.adjust = header.adjust;
  bytes.target = header.target;
  bytes.match = header.match;
  bytes.actor = actor;
  std::byte* at = Begin(1 + sizeof bytes + name.size());
  Put(&at, static_cast<std::byte>(kFunction));
  Put(&at, bytes);
  std::copy(name.begin(), name.end(), reinterpret_cast<char*>(at));
  End(at + name.size());
  const auto number = static_cast<std::uint32_t>(functions_.size());
  functions_.push_back(std::move(known));
  numbers.push_back(number);
  recent = {hash, number};
  return number;
}

std::uint64_t Encoder::PutTask(const CallOrigin& origin, const shm::SpecHeader& header, std::string_view name,
                               const Id& actor, std::span<const std::byte> arguments) {
  if (ChapterIsFull()) NewChapter();
  PutRun(false);
  const bool again = function_ < functions_.size() && functions_[function_]->function.Is(header, name, actor);
  const std::uint32_t function = again ? function_ : NumberOf(header, name, actor);
  if (origin.parent != next_.parent || origin.path != next_.path || origin.index < next_.index) {
    std::byte* at = Begin(64);
    Put(&at, static_cast<std::byte>(kContext));
    Put(&at, origin.parent);
    PutNumber(&at, origin.path);
    PutNumber(&at, origin.index);
    End(at);
    next_ = origin;
  }
  Known& known = *functions_[function];
  const bool whole = arguments.size() <= kMostRecord;
  const bool packed = arguments.size() <= 8 * kMostWords;
  std::byte* at = Begin(48 + (whole ? MostPacked(arguments.size()) : 0));
  const bool same_function = function == function_;
  const bool same_size = packed && known.last.size() * 8 == arguments.size();
  unsigned tag = kTask;
  if (same_function) tag |= kSameFunction;
  if (origin.index != next_.index) tag |= kSkips;
  if (whole) tag |= kWhole;
  if (same_size) tag |= kSameSize;
  *at++ = static_cast<std::byte>(tag);
  if (!same_function) PutNumber(&at, function);
  if (origin.index != next_.index) PutNumber(&at, origin.index - next_.index);
  if (whole && !same_size) PutNumber(&at, arguments.size());
  if (whole && packed) {
    if (!same_size) known.last.assign((arguments.size() + 7) / 8, {});
    Pack(&at, arguments, &known.last);
  } else if (whole) {
    std::memcpy(at, arguments.data(), arguments.size());
    at += arguments.size();
  }
  End(at);
  function_ = function;
  expected_ = &known;
  expected_arguments_ =
      packed && arguments.size() < 8 * kFewWords && arguments.size() % 8 == 0 ? arguments.size() : kNoSize;
  next_.index = origin.index + 1;
  return ++sequence_;
}

inline void Encoder::OutcomeHead(std::byte** at, OutcomeKind kind, std::uint64_t sequence, std::uint32_t index) {
  unsigned tag = kOutcome | static_cast<unsigned>(kind) << kKindShift;
  if (sequence == answered_ + 1) tag |= kNextSequence;
  if (index != 0) tag |= kHasIndex;
  *(*at)++ = static_cast<std::byte>(tag);
  if (sequence != answered_ + 1) PutNumber(at, ZigZag(static_cast<std::int64_t>(sequence - answered_)));
  if (index != 0) PutNumber(at, index);
  answered_ = sequence;
}

void Encoder::PutValue(std::uint64_t sequence, std::uint32_t index, std::span<const std::byte> value) {
  Settle();
  expected_value_ = value.size() < 8 * kFewWords ? value.size() : kNoSize;
  std::byte* at = Begin(48 + MostPacked(value.size()));
  OutcomeHead(&at, OutcomeKind::kValue, sequence, index);
  PutNumber(&at, value.size());
  if (value.size() <= 8 * kMostWords) {
    Pack(&at, value, &last_value_);
  } else {
    std::memcpy(at, value.data(), value.size());
    at += value.size();
  }
  End(at);
}

void Encoder::Stored(std::uint64_t sequence, std::uint32_t index, std::uint64_t size) {
  Settle();
  std::byte* at = Begin(48);
  OutcomeHead(&at, OutcomeKind::kStored, sequence, index);
  PutNumber(&at, size);
  End(at);
}

void Encoder::Failed(std::uint64_t sequence, std::uint32_t index, const Failure& failure) {
  const std::size_t length = std::min(failure.message.size(), kMostMessage);
  Settle();
  std::byte* at = Begin(48 + length);
  OutcomeHead(&at, OutcomeKind::kFailed, sequence, index);
  PutNumber(&at, static_cast<std::uint64_t>(failure.code));
  PutNumber(&at, length);
  std::memcpy(at, failure.message.data(), length);
  End(at + length);
  ring_.memory().failed.fetch_add(1, std::memory_order_relaxed);
}

// ---- reading ----

void Decoder::NextTask(Sink& sink) {
  Known& known = *functions_[function_];
  Continue(8 * known.last.size(), &known.last, &bytes_);
  sink.OnTask({++sequence_, next_, next_.id(), &known.function, bytes_});
  ++next_.index;
}

void Decoder::NextOutcome(Sink& sink) {
  Continue(last_size_, &last_value_, &bytes_);
  OutcomeRecord outcome;
  outcome.sequence = ++answered_;
  outcome.size = last_size_;
  outcome.value = bytes_;
  sink.OnOutcome(outcome);
}

Status Decoder::Read(std::span<const std::byte> bytes, bool chapter, Sink& sink) {
  if (chapter) lost_ = false;
  if (lost_) return {};
  Reader in(bytes);
  const auto fail = [this](const char* what) {
    lost_ = true;
    return Status(Code::kCorrupt, Cat("a record of lineage makes no sense: ", what));
  };
  while (in.more()) {
    const auto tag = static_cast<unsigned>(in.Take<std::byte>());
    switch (tag & 7) {
      case kChapter: {
        if (in.Number() != kVersion) return fail("it is of another version");
        functions_.clear();
        last_value_.clear();
        last_size_ = 0;
        next_ = {};
        answered_ = 0;
        function_ = 0;
        sequence_ = in.Number();
        break;
      }
      case kContext: {
        next_.parent = in.Take<Id>();
        next_.path = in.Number();
        next_.index = in.Number();
        break;
      }
      case kFunction: {
        const auto as = in.Take<FunctionBytes>();
        const std::span<const std::byte> name = in.Bytes(as.name_bytes);
        auto known = std::make_unique<Known>();
        shm::SpecHeader& header = known->function.header;
        header.flags = as.flags;
        header.name_bytes = as.name_bytes;
        header.returns = as.returns;
        header.module = as.module;
        header.trampoline = as.trampoline;
        header.target_module = as.target_module;
        header.target = as.target;
        header.adjust = as.adjust;
        header.match = as.match;
        known->function.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
        known->function.actor = as.actor;
        functions_.push_back(std::move(known));
        break;
      }
      case kRun: {
        std::uint64_t calls = (tag >> kCallsShift) & kMany;
        std::uint64_t answers = (tag >> kAnswersShift) & kMany;
        if (calls == kMany) calls = in.Number();
        if (answers == kMany) answers = in.Number();
        if (in.bad() || calls > kMostRun || answers > kMostRun) return fail("it goes on for too long");
        if (calls > 0 && function_ >= functions_.size()) return fail("it names no code");
        if (answers > 0 && last_size_ > 8 * kFewWords) return fail("its value cannot be expected");
        for (; calls > 0; --calls) NextTask(sink);
        for (; answers > 0; --answers) NextOutcome(sink);
        break;
      }
      case kTask: {
        if ((tag & kSameFunction) == 0) function_ = static_cast<std::uint32_t>(in.Number());
        if ((tag & kSkips) != 0) next_.index += in.Number();
        if (function_ >= functions_.size()) return fail("it names no code");
        Known& known = *functions_[function_];
        TaskRecord task;
        task.sequence = ++sequence_;
        task.origin = next_;
        task.id = next_.id();
        task.function = &known.function;
        task.whole = (tag & kWhole) != 0;
        if (task.whole) {
          const std::uint64_t size = (tag & kSameSize) != 0 ? known.last.size() * 8 : in.Number();
          if (size <= 8 * kMostWords) {
            if ((tag & kSameSize) == 0) known.last.assign((size + 7) / 8, {});
            in.Unpack(size, &known.last, &bytes_);
            task.arguments = bytes_;
          } else {
            task.arguments = in.Bytes(size);
          }
        }
        if (in.bad()) return fail("it is cut off");
        ++next_.index;
        sink.OnTask(task);
        break;
      }
      case kOutcome: {
        OutcomeRecord outcome;
        answered_ += (tag & kNextSequence) != 0 ? 1 : static_cast<std::uint64_t>(UnZigZag(in.Number()));
        outcome.sequence = answered_;
        if ((tag & kHasIndex) != 0) outcome.index = static_cast<std::uint32_t>(in.Number());
        outcome.kind = static_cast<OutcomeKind>((tag >> kKindShift) & 3);
        if (outcome.kind == OutcomeKind::kValue) {
          outcome.size = last_size_ = in.Number();
          if (outcome.size <= 8 * kMostWords) {
            in.Unpack(outcome.size, &last_value_, &bytes_);
            outcome.value = bytes_;
          } else {
            outcome.value = in.Bytes(outcome.size);
          }
        } else if (outcome.kind == OutcomeKind::kStored) {
          outcome.size = in.Number();
        } else {
          outcome.kind = OutcomeKind::kFailed;
          outcome.code = static_cast<Code>(in.Number());
          const std::span<const std::byte> text = in.Bytes(in.Number());
          outcome.message = {reinterpret_cast<const char*>(text.data()), text.size()};
        }
        if (in.bad()) return fail("it is cut off");
        sink.OnOutcome(outcome);
        break;
      }
      default:
        return fail("it is of no known kind");
    }
    if (in.bad()) return fail("it is cut off");
  }
  return {};
}

}  // namespace manta::lineage
