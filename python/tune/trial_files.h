// The results of one trial on their way to the journal and to the files that people read: completes each result with
// the automatic keys and writes it with the native loggers.
//
// Complete and Read need the GIL; Write does not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convert.h"
#include "tune/loggers/loggers.h"

namespace manta::python {

struct LoggerKinds {
  bool csv = true;
  bool json = true;
  bool tensorboard = true;
};

// One result, read from its dictionary.
struct Row {
  tune::TrialResult event;                  // the user's metrics only
  tune::Metrics metrics;                    // and the automatic keys
  std::map<std::string, std::string> json;  // values that are neither numbers nor text
  double timestamp = 0;
};

class TrialFiles {
 public:
  // `config` is the Python configuration. Throws PythonError and std::runtime_error.
  TrialFiles(tune::TrialNumber number, const std::string& folder, PyObject* config, LoggerKinds kinds);

  // Automatic keys that never change: [(key, value)].
  void SetFacts(PyObject* dict) { facts_ = Held::Share(dict); }
  // A process has started the trial at this point.
  void Begin(PyObject* process_facts, std::int64_t iteration, double time_total, double now);
  // Adds the automatic keys to a result that was made at `when`; `checkpoint` is the name of its folder or nullptr.
  void Complete(PyObject* result, double when, PyObject* checkpoint);
  Row Read(PyObject* result);
  void Write(const Row& row);
  bool Flush(std::string& why);  // false: the disk is full
  void End();

 private:
  void SetDefault(PyObject* result, PyObject* key, PyObject* value);

  tune::TrialNumber number_;
  tune::Config flat_;
  tune::loggers::JsonValues config_json_;
  Held config_;
  Held facts_;
  Held process_;
  std::vector<std::unique_ptr<tune::loggers::Logger>> loggers_;
  std::int64_t iteration_ = 0;
  std::int64_t since_restore_ = 0;
  double time_total_ = 0;
  double time_since_restore_ = 0;
  double last_ = 0;  // when the result before was made
  long date_second_ = -1;
  Held date_;
  bool ended_ = false;
};

}  // namespace manta::python
