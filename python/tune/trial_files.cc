#include "trial_files.h"

#include <unistd.h>

#include <array>
#include <cmath>
#include <ctime>
#include <unordered_set>

namespace manta::python {
namespace {

// Interned names of the automatic keys.
struct Keys {
  PyObject* training_iteration = PyUnicode_InternFromString("training_iteration");
  PyObject* time_this_iter_s = PyUnicode_InternFromString("time_this_iter_s");
  PyObject* time_total_s = PyUnicode_InternFromString("time_total_s");
  PyObject* timestamp = PyUnicode_InternFromString("timestamp");
  PyObject* date = PyUnicode_InternFromString("date");
  PyObject* done = PyUnicode_InternFromString("done");
  PyObject* time_since_restore = PyUnicode_InternFromString("time_since_restore");
  PyObject* iterations_since_restore = PyUnicode_InternFromString("iterations_since_restore");
  PyObject* timesteps_total = PyUnicode_InternFromString("timesteps_total");
  PyObject* episodes_total = PyUnicode_InternFromString("episodes_total");
  PyObject* checkpoint_dir_name = PyUnicode_InternFromString("checkpoint_dir_name");
  PyObject* config = PyUnicode_InternFromString("config");
  PyObject* trial_id = PyUnicode_InternFromString("trial_id");
  PyObject* experiment_tag = PyUnicode_InternFromString("experiment_tag");
  PyObject* pid = PyUnicode_InternFromString("pid");
  PyObject* hostname = PyUnicode_InternFromString("hostname");
  PyObject* node_ip = PyUnicode_InternFromString("node_ip");
  // Of these, the keys that a decision never depends on: they are logged, but not part of the event.
  std::unordered_set<std::string> not_in_event = {"time_this_iter_s",
                                                  "timestamp",
                                                  "date",
                                                  "time_since_restore",
                                                  "iterations_since_restore",
                                                  "config",
                                                  "trial_id",
                                                  "experiment_tag",
                                                  "pid",
                                                  "hostname",
                                                  "node_ip",
                                                  "done",
                                                  "checkpoint_dir_name",
                                                  "training_iteration",
                                                  "time_total_s"};
};

const Keys& keys() {
  static const Keys all;
  return all;
}

Held Float(double value) { return Must(PyFloat_FromDouble(value)); }
Held Int(std::int64_t value) { return Must(PyLong_FromLongLong(value)); }

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("localhost");
}

double Now() { return static_cast<double>(std::time(nullptr)); }

}  // namespace

TrialFiles::TrialFiles(tune::TrialNumber number, const std::string& folder, PyObject* config, LoggerKinds kinds)
    : number_(number), config_(Held::Share(config)) {
  Flat flat;
  Flatten(config, "", flat);
  flat_ = std::move(flat.metrics);
  tune::loggers::WriteParams(folder, flat_, &flat.json);
  for (auto& [key, text] : flat.json) config_json_["config/" + key] = text;
  if (kinds.csv) loggers_.push_back(tune::loggers::MakeCsvLogger(folder));
  if (kinds.json) loggers_.push_back(tune::loggers::MakeJsonLogger(folder));
  if (kinds.tensorboard) loggers_.push_back(tune::loggers::MakeTensorBoardLogger(folder, flat_, HostName(), Now()));
}

void TrialFiles::Begin(PyObject* process_facts, std::int64_t iteration, double time_total, double now) {
  process_ = Held::Share(process_facts);
  iteration_ = iteration;
  time_total_ = time_total;
  since_restore_ = 0;
  time_since_restore_ = 0;
  last_ = now;
}

void TrialFiles::SetDefault(PyObject* result, PyObject* key, PyObject* value) {
  if (PyDict_SetDefault(result, key, value) == nullptr) throw PythonError{};
}

void TrialFiles::Complete(PyObject* result, double when, PyObject* checkpoint) {
  const Keys& key = keys();
  double took = std::max(0.0, when - last_);
  last_ = when;
  if (PyObject* given = PyDict_GetItem(result, key.time_this_iter_s)) took = NumberOf(given);
  ++iteration_;
  ++since_restore_;
  if (PyObject* given = PyDict_GetItem(result, key.training_iteration); given != nullptr && PyLong_Check(given))
    iteration_ = PyLong_AsLongLong(given);
  time_total_ += took;
  time_since_restore_ += took;
  SetDefault(result, key.training_iteration, Int(iteration_).get());
  SetDefault(result, key.time_this_iter_s, Float(took).get());
  SetDefault(result, key.time_total_s, Float(time_total_).get());
  SetDefault(result, key.done, Py_False);
  SetDefault(result, key.timesteps_total, Py_None);
  SetDefault(result, key.episodes_total, Py_None);
  SetDefault(result, key.time_since_restore, Float(time_since_restore_).get());
  SetDefault(result, key.iterations_since_restore, Int(since_restore_).get());
  SetDefault(result, key.checkpoint_dir_name, checkpoint == nullptr ? Py_None : checkpoint);
  const long second = static_cast<long>(when);
  if (second != date_second_) {
    date_second_ = second;
    const std::time_t time = second;
    std::tm parts{};
    localtime_r(&time, &parts);
    std::array<char, 32> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%d_%H-%M-%S", &parts);
    date_ = Must(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(size)));
  }
  SetDefault(result, key.timestamp, Int(second).get());
  SetDefault(result, key.date, date_.get());
  if (process_ && PyDict_Merge(result, process_.get(), 0) != 0) throw PythonError{};
  if (facts_ && PyDict_Merge(result, facts_.get(), 0) != 0) throw PythonError{};
  SetDefault(result, key.config, config_.get());
}

Row TrialFiles::Read(PyObject* result) {
  const Keys& key = keys();
  Row row;
  row.event.trial = number_;
  Flat flat;
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(result, &at, &name, &value) != 0) {
    if (name == key.config) continue;
    if (PyUnicode_Check(name)) {
      FlattenOne(TextOf(name), value, flat);
    } else {
      const Held text = Must(PyObject_Str(name));
      FlattenOne(TextOf(text.get()), value, flat);
    }
  }
  for (const auto& [path, metric] : flat.metrics) {
    if (!key.not_in_event.contains(path)) row.event.metrics.emplace_hint(row.event.metrics.end(), path, metric);
  }
  const auto number = [&](const char* path) {
    const auto found = flat.metrics.find(path);
    if (found == flat.metrics.end()) return 0.0;
    if (const auto* integer = std::get_if<std::int64_t>(&found->second)) return static_cast<double>(*integer);
    if (const auto* real = std::get_if<double>(&found->second)) return *real;
    return 0.0;
  };
  row.event.iteration = static_cast<std::int64_t>(number("training_iteration"));
  row.event.time_total = number("time_total_s");
  row.timestamp = number("timestamp");
  const auto done = flat.metrics.find("done");
  row.event.done = done != flat.metrics.end() && done->second == tune::Value(true);
  row.metrics = std::move(flat.metrics);
  row.json = std::move(flat.json);
  return row;
}

void TrialFiles::Write(const Row& row) {
  tune::loggers::Row out{&row.metrics, &flat_, &row.json, row.event.iteration, row.timestamp};
  tune::Metrics metrics;
  tune::loggers::JsonValues json;
  if (!config_json_.empty()) {  // the parts of the configuration that are not plain are among the values as JSON
    metrics = row.metrics;
    for (const auto& [key, value] : flat_) metrics.emplace("config/" + key, value);
    json = row.json;
    json.insert(config_json_.begin(), config_json_.end());
    out.metrics = &metrics;
    out.config = nullptr;
    out.json = &json;
  }
  for (const auto& logger : loggers_) logger->Write(out);
}

bool TrialFiles::Flush(std::string& why) {
  bool all = true;
  for (const auto& logger : loggers_) {
    if (logger->Flush()) continue;
    why = logger->why();
    all = false;
  }
  return all;
}

void TrialFiles::End() {
  if (ended_) return;
  ended_ = true;
  for (const auto& logger : loggers_) logger->End(Now());
}

}  // namespace manta::python
