#include "tune/journal/run_log.h"

#include <span>
#include <string_view>

#include "manta/codec.h"

namespace manta::tune::journal {
namespace {

constexpr char kDescription = 'D';
constexpr char kEvent = 'E';
constexpr char kMade = 'M';

template <class T>
std::string Bytes(char kind, const T& value) {
  std::string bytes(1 + EncodedSize(value), '\0');
  bytes[0] = kind;
  Encode(value, std::as_writable_bytes(std::span(bytes)).subspan(1));
  return bytes;
}

template <class T>
T Value(std::string_view bytes) {
  return Decode<T>(std::as_bytes(std::span(bytes)).subspan(1));
}

// Calls back for each event with its choices; `complete` is false for a last event without them.
class Pairs {
 public:
  using Function = std::function<void(const Event&, const std::vector<Made>&, bool complete)>;
  explicit Pairs(Function function) : function_(std::move(function)) {}

  void Add(std::uint64_t number, std::string_view record) {
    const char kind = record.empty() ? '\0' : record.front();
    try {
      if (kind == kDescription && number == 0) {
        description = Value<Description>(record);
      } else if (kind == kEvent) {
        Flush(true);
        event_ = Value<Event>(record);
      } else if (kind == kMade && event_) {
        made_ = Value<std::vector<Made>>(record);
      } else {
        throw JournalError("its kind is " + std::to_string(static_cast<int>(kind)));
      }
    } catch (const CorruptError& error) {
      throw JournalError("record " + std::to_string(number) + " cannot be read: " + error.what());
    }
  }
  void Flush(bool complete) {
    if (!event_) return;
    function_(*event_, made_, complete || !made_.empty());
    event_.reset();
    made_.clear();
  }

  std::optional<Description> description;

 private:
  Function function_;
  std::optional<Event> event_;
  std::vector<Made> made_;
};

void Compare(const std::string& path, const Description& asked, const Description& recorded) {
  for (const auto& [name, value] : asked) {
    auto found = recorded.find(name);
    const std::string before = found == recorded.end() ? "nothing" : found->second;
    if (before == value) continue;
    std::string text = "cannot restore ";
    text.append(path).append(": ").append(name).append(" was \"").append(before).append("\" and is now \"");
    text.append(value).append("\". Restore with the same ").append(name).append(", or start a new run.");
    throw JournalError(text);
  }
}

}  // namespace

std::unique_ptr<RunLog> RunLog::Create(const std::string& path, const Description& description) {
  std::unique_ptr<RunLog> log(new RunLog());
  log->journal_ = Journal::Create(path);
  log->journal_->Append(Bytes(kDescription, description));
  if (!log->journal_->Commit()) throw JournalError(log->journal_->why());
  return log;
}

std::unique_ptr<RunLog> RunLog::Restore(const std::string& path, const Description& description,
                                        trials::Controller& controller, const OnStep& on_step) {
  std::unique_ptr<RunLog> log(new RunLog());
  std::vector<Made> fresh;
  bool unrecorded = false;
  Pairs pairs([&](const Event& event, const std::vector<Made>& made, bool complete) {
    log->last_time_ = event.now;
    const std::vector<Action> actions = complete ? controller.Replay(event, made) : controller.Step(event);
    if (!complete) fresh = controller.made();
    unrecorded = !complete;
    if (on_step) on_step(event, actions);
  });
  bool compared = false;
  log->journal_ = Journal::Open(path, [&](std::uint64_t number, std::string_view record) {
    pairs.Add(number, record);
    if (pairs.description && !compared) Compare(path, description, *pairs.description);
    compared = pairs.description.has_value();
  });
  if (!compared) throw JournalError("journal " + path + " is empty: the run never began. Start it again.");
  pairs.Flush(false);
  if (unrecorded) log->RecordMade(fresh);
  return log;
}

Description RunLog::ReadDescription(const std::string& path) {
  Pairs pairs([](const Event&, const std::vector<Made>&, bool) {});
  Journal::Read(path, [&](std::uint64_t number, std::string_view record) {
    if (number == 0) pairs.Add(number, record);
  });
  return pairs.description.value_or(Description());
}

void RunLog::Read(const std::string& path, const OnEvent& on_event) {
  Pairs pairs([&](const Event& event, const std::vector<Made>& made, bool) { on_event(event, made); });
  Journal::Read(path, [&](std::uint64_t number, std::string_view record) { pairs.Add(number, record); });
  pairs.Flush(true);
}

void RunLog::Record(const Event& event) {
  last_time_ = event.now;
  journal_->Append(Bytes(kEvent, event));
}

void RunLog::RecordMade(const std::vector<Made>& made) {
  if (!made.empty()) journal_->Append(Bytes(kMade, made));
}

}  // namespace manta::tune::journal
