// History is what every searcher keeps: the trials in the order in which they were asked for, with their configurations
// and results. A searcher's model is a function of its history, so saving a searcher means saving this.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "manta/tune/search.h"

namespace manta::tune {

struct HistoryTrial {
  enum class State { kRunning, kDone, kFailed };
  TrialNumber number = 0;
  Config config;
  State state = State::kRunning;
  std::vector<double> values;  // lower is better: the searcher has applied the mode
  std::vector<std::pair<double, double>> reports;
};

// HistorySearcher implements the searcher's contract on a history; a searcher adds Propose and, if it keeps a model
// that depends on the order of events, the hooks. Load calls the hooks in the recorded order, but not Propose.
class HistorySearcher : public Searcher {
 public:
  explicit HistorySearcher(std::vector<Mode> modes) : modes_(std::move(modes)) {}
  using Searcher::Tell;
  Answer Ask(TrialNumber trial) final;
  void Report(TrialNumber trial, double time, double value) final;
  void Tell(TrialNumber trial, const std::vector<double>& values) final;
  void Fail(TrialNumber trial) final;
  std::string Save() const final;
  void Load(std::string_view bytes) final;

 protected:
  // Must not change the state of the searcher: OnAsk follows if the answer is a configuration.
  virtual Answer Propose(TrialNumber trial) = 0;
  virtual void OnAsk(const HistoryTrial&) {}
  virtual void OnReport(const HistoryTrial&) {}
  virtual void OnEnd(const HistoryTrial&) {}

  const std::vector<HistoryTrial>& trials() const { return trials_; }
  int running() const { return running_; }

 private:
  HistoryTrial& Running(TrialNumber trial);
  void Begin(TrialNumber trial, Config config);

  std::vector<Mode> modes_;
  std::vector<HistoryTrial> trials_;
  std::unordered_map<TrialNumber, std::size_t> index_;
  std::string log_;  // the events as bytes
  int running_ = 0;
};

}  // namespace manta::tune
