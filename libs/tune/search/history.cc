#include "tune/search/history.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace manta::tune {
namespace {

constexpr std::string_view kFormat = "manta-search-1\n";

template <class T>
void Put(std::string& out, T number) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &number, sizeof(T));
  out.append(bytes, sizeof(T));
}

void Put(std::string& out, const std::string& text) {
  Put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void Put(std::string& out, const Config& config) {
  Put(out, static_cast<std::uint64_t>(config.size()));
  for (const auto& [path, value] : config) {
    Put(out, path);
    out += static_cast<char>(value.index());
    std::visit([&](const auto& held) { Put(out, held); }, value);
  }
}

// Reads what Put wrote. Bytes that end early or make no sense throw std::invalid_argument.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }

  std::string_view Take(std::uint64_t n) {
    if (n > bytes_.size())
      throw std::invalid_argument("the saved searcher is damaged: it ends too early. Use another save.");
    std::string_view part = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return part;
  }
  template <class T>
  T Number() {
    T number;
    Take(sizeof(T)).copy(reinterpret_cast<char*>(&number), sizeof(T));
    return number;
  }
  std::string Text() { return std::string(Take(Number<std::uint64_t>())); }
  Value OneValue() {
    switch (Number<char>()) {
      case 0:
        return Number<char>() != 0;
      case 1:
        return Number<std::int64_t>();
      case 2:
        return Number<double>();
      case 3:
        return Text();
      default:
        throw std::invalid_argument("the saved searcher is damaged: a value has an unknown type. Use another save.");
    }
  }
  Config OneConfig() {
    Config config;
    for (auto n = Number<std::uint64_t>(); n > 0; --n) {
      std::string path = Text();
      config[path] = OneValue();
    }
    return config;
  }

 private:
  std::string_view bytes_;
};

}  // namespace

HistoryTrial& HistorySearcher::Running(TrialNumber trial) {
  auto found = index_.find(trial);
  if (found == index_.end()) {
    throw std::invalid_argument("trial " + std::to_string(trial) + " is unknown to the searcher. Ask for it first.");
  }
  HistoryTrial& result = trials_[found->second];
  if (result.state != HistoryTrial::State::kRunning) {
    throw std::invalid_argument("trial " + std::to_string(trial) + " has already ended. Tell or fail each trial once.");
  }
  return result;
}

void HistorySearcher::Begin(TrialNumber trial, Config config) {
  log_ += 'A';
  Put(log_, trial);
  Put(log_, config);
  index_[trial] = trials_.size();
  trials_.push_back({.number = trial, .config = std::move(config), .values = {}, .reports = {}});
  ++running_;
  OnAsk(trials_.back());
}

Answer HistorySearcher::Ask(TrialNumber trial) {
  if (trial < 0 || index_.contains(trial)) {
    throw std::invalid_argument("trial " + std::to_string(trial) +
                                (trial < 0 ? " is negative." : " has already been asked for.") + " Use a new number.");
  }
  Answer answer = Propose(trial);
  if (const auto* config = std::get_if<Config>(&answer)) Begin(trial, *config);
  return answer;
}

void HistorySearcher::Report(TrialNumber trial, double time, double value) {
  HistoryTrial& running = Running(trial);
  log_ += 'R';
  Put(log_, trial);
  Put(log_, time);
  Put(log_, value);
  running.reports.emplace_back(time, modes_[0] == Mode::kMax ? -value : value);
  OnReport(running);
}

void HistorySearcher::Tell(TrialNumber trial, const std::vector<double>& values) {
  HistoryTrial& running = Running(trial);
  if (values.size() != modes_.size()) {
    throw std::invalid_argument("trial " + std::to_string(trial) + " has " + std::to_string(values.size()) +
                                " values, the searcher has " + std::to_string(modes_.size()) +
                                " objectives. Give one value for each.");
  }
  for (double value : values) {
    if (!std::isfinite(value)) return Fail(trial);
  }
  log_ += 'T';
  Put(log_, trial);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Put(log_, values[i]);
    running.values.push_back(modes_[i] == Mode::kMax ? -values[i] : values[i]);
  }
  running.state = HistoryTrial::State::kDone;
  --running_;
  OnEnd(running);
}

void HistorySearcher::Fail(TrialNumber trial) {
  HistoryTrial& running = Running(trial);
  log_ += 'F';
  Put(log_, trial);
  running.state = HistoryTrial::State::kFailed;
  --running_;
  OnEnd(running);
}

std::string HistorySearcher::Save() const { return std::string(kFormat) + log_; }

void HistorySearcher::Load(std::string_view bytes) {
  if (!trials_.empty()) throw std::invalid_argument("the searcher already has trials. Load into a new searcher.");
  if (!bytes.starts_with(kFormat)) throw std::invalid_argument("these bytes are no saved searcher. Use those of Save.");
  Reader reader(bytes.substr(kFormat.size()));
  while (!reader.done()) {
    char event = reader.Number<char>();
    auto trial = reader.Number<TrialNumber>();
    if (event == 'A') {
      Begin(trial, reader.OneConfig());
    } else if (event == 'R') {
      auto time = reader.Number<double>();
      Report(trial, time, reader.Number<double>());
    } else if (event == 'T') {
      std::vector<double> values(modes_.size());
      for (double& value : values) value = reader.Number<double>();
      Tell(trial, values);
    } else if (event == 'F') {
      Fail(trial);
    } else {
      throw std::invalid_argument("the saved searcher is damaged: an event has an unknown kind. Use another save.");
    }
  }
}

}  // namespace manta::tune
