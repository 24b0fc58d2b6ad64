// Loggers write the files of a trial that people and other programs read, under Ray's names: params.json, result.json
// (a JSON object per line), progress.csv (header from the first result) and events.out.tfevents.* (TensorBoard: scalars
// and hyperparameters).
//
// They are native: a result costs a few microseconds for all three. Lines are collected in memory and written by Flush,
// which the runtime calls once per loop, or when 64 KiB wait. A full disk makes Flush return false; nothing is lost,
// and it is called again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "manta/tune/events.h"

namespace manta::tune::loggers {

// Values that are neither numbers nor text, as JSON: lists, null. Written to result.json and progress.csv as they are.
using JsonValues = std::map<std::string, std::string>;

// One result with its automatic keys.
struct Row {
  const Metrics* metrics = nullptr;  // all keys, automatic ones included
  const Config* config = nullptr;    // written as "config" (JSON) and "config/…" (CSV)
  const JsonValues* json = nullptr;  // may be null
  std::int64_t iteration = 0;
  double timestamp = 0;  // seconds since 1970
};

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void Write(const Row& row) = 0;
  virtual void End(double timestamp) = 0;  // the trial has ended
  virtual bool Flush() = 0;                // false: the disk is full
  virtual std::string why() const = 0;
};

// `folder` exists. Files that exist are continued: the header of progress.csv is read back.
std::unique_ptr<Logger> MakeCsvLogger(const std::string& folder);
std::unique_ptr<Logger> MakeJsonLogger(const std::string& folder);
std::unique_ptr<Logger> MakeTensorBoardLogger(const std::string& folder, const Config& config, const std::string& host,
                                              double timestamp);

// params.json. Throws std::runtime_error.
void WriteParams(const std::string& folder, const Config& config, const JsonValues* json = nullptr);

// The trial's folder name as in Ray: "train_3f2a1_00017_18_act=relu,lr=0.01_2026-11-18_12-00-00". The parameters are
// cut so that the name has at most `max_length` characters before the date.
std::string FolderName(const std::string& trainable, const std::string& id, TrialNumber number, const Config& config,
                       const std::string& date, std::size_t max_length = 130);

// A configuration or result as nested JSON: {"a/b": 1} becomes {"a": {"b": 1}}. nan and infinite numbers are written as
// Python's json module writes them.
void AppendJson(std::string& out, const Metrics& metrics, const JsonValues* json = nullptr,
                const Config* config = nullptr);
// The text of a value as in CSV: no quotes.
void AppendText(std::string& out, const Value& value);

}  // namespace manta::tune::loggers
