// Loggers write the files of a trial that people and other programs read, under Ray's names: params.json, result.json
// (a JSON object per line), progress.csv (header from the first result) and events.out.tfevents.* (TensorBoard: scalars
// and hyperparameters).
//
// They are native: a result costs a few microseconds for all three. Lines are collected and written by Flush, which the
// runtime calls once per loop, or when 64 KiB are waiting. A full disk makes Flush return false; nothing is lost, and it
// is called again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "manta/tune/events.h"

namespace manta::tune::loggers {

// One result with its automatic keys.
struct Row {
  const Metrics* metrics = nullptr;  // all keys, automatic ones included
  const Config* config = nullptr;    // written as "config" (JSON) and "config/…" (CSV)
  // Values that are neither numbers nor text, as JSON: lists, null. Written to result.json and progress.csv as they are.
  const std::map<std::string, std::string>* json = nullptr;
  std::int64_t iteration = 0;
  double timestamp = 0;  // seconds since 1970
};

struct TrialFiles {
  std::string folder;  // exists
  Config config;
  std::string trial_name;
};

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void Write(const Row& row) = 0;
  // The last result and the end of the trial (hyperparameters with their metrics).
  virtual void End(const Row* last) = 0;
  virtual bool Flush() = 0;           // false: the disk is full
  virtual std::string why() const = 0;
};

// A restored run appends: the header of progress.csv is read back, results up to `seen` iterations stay.
std::unique_ptr<Logger> MakeCsvLogger(const TrialFiles& files);
std::unique_ptr<Logger> MakeJsonLogger(const TrialFiles& files);
std::unique_ptr<Logger> MakeTensorBoardLogger(const TrialFiles& files, const std::string& host, double now);

// params.json, once. Throws std::runtime_error.
void WriteParams(const TrialFiles& files, const std::map<std::string, std::string>* json = nullptr);

// The trial's folder name as in Ray: "train_17_lr=0.01,act=relu_2026-11-18_12-00-00", parameters cut to `max_length`.
std::string FolderName(const std::string& trainable, const std::string& id, TrialNumber number, const Config& config,
                       const std::string& date, std::size_t max_length = 130);

// A configuration or result as nested JSON: {"a/b": 1} becomes {"a": {"b": 1}}.
std::string ToJson(const Metrics& metrics, const std::map<std::string, std::string>* json = nullptr);

}  // namespace manta::tune::loggers
