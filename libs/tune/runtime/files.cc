#include "tune/runtime/files.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "manta/errors.h"

namespace manta::tune::runtime {
namespace {

namespace fs = std::filesystem;

std::string Date(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  localtime_r(&whole, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d_%H-%M-%S", &parts);
  return text;
}

// Ray's readers expect the key in every result.
const loggers::JsonValues kNoCheckpoint{{"checkpoint_dir_name", "null"}};
const loggers::JsonValues* JsonOf(const TrialResult& result) { return result.checkpoint ? nullptr : &kNoCheckpoint; }

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Counts complete lines and cuts an incomplete last one.
std::size_t CompleteLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return 0;
  std::size_t lines = 0;
  std::uintmax_t end = 0;
  std::uintmax_t at = 0;
  for (std::string line; std::getline(file, line);) {
    at += line.size() + 1;
    if (file.eof()) break;  // no newline at its end
    ++lines;
    end = at;
  }
  file.close();
  std::error_code error;
  if (fs::file_size(path, error) > end && !error) fs::resize_file(path, end, error);
  return lines;
}

}  // namespace

RunFiles::RunFiles(FileOptions options) : options_(std::move(options)) {
  // Folders of a run that is restored: "<trainable>_<run id>_<number>_…".
  const std::string prefix = options_.trainable + "_" + options_.run_id + "_";
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || !name.starts_with(prefix)) continue;
    folders_[std::strtoll(name.c_str() + prefix.size(), nullptr, 10)] = name;
  }
}

std::string RunFiles::IdOf(TrialNumber trial) const {
  char number[24];
  std::snprintf(number, sizeof number, "_%05lld", static_cast<long long>(trial));
  return options_.run_id + number;
}

std::string RunFiles::FolderOf(const trials::Trial& trial) {
  std::string& folder = folders_[trial.number];
  if (folder.empty()) {
    folder = loggers::FolderName(options_.trainable, IdOf(trial.number), trial.number, trial.config,
                                 Date(WallSeconds()), options_.max_folder_name);
  }
  return folder;
}

std::string RunFiles::Prepare(const trials::Trial& trial) {
  const std::string folder = options_.folder + "/" + FolderOf(trial);
  std::error_code error;
  const bool created = fs::create_directory(folder, error);
  if (error)
    throw IoError("cannot create folder " + folder + ": " + error.message() + ". Free space or check the rights.");
  if (created) loggers::WriteParams(folder, trial.config);
  return folder;
}

RunFiles::Open& RunFiles::Loggers(const trials::Trial& trial) {
  auto [found, fresh] = open_.try_emplace(trial.number);
  if (!fresh) return found->second;
  const std::string folder = options_.folder + "/" + FolderOf(trial);
  if (options_.json) found->second.loggers.push_back(loggers::MakeJsonLogger(folder));
  if (options_.csv) found->second.loggers.push_back(loggers::MakeCsvLogger(folder));
  if (options_.tensorboard) {
    char host[256] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    found->second.loggers.push_back(loggers::MakeTensorBoardLogger(folder, trial.config, host, WallSeconds()));
  }
  return found->second;
}

Metrics RunFiles::Row(const trials::Trial& trial, const TrialResult& result, const Origin& origin) const {
  Metrics row = result.metrics;
  const double timestamp = origin.timestamp > 0 ? origin.timestamp : WallSeconds();
  row.try_emplace("training_iteration", result.iteration);
  row.try_emplace("time_total_s", result.time_total);
  row.try_emplace("time_this_iter_s", origin.time_this_iter);
  row.try_emplace("timestamp", static_cast<std::int64_t>(timestamp));
  row.try_emplace("date", Date(timestamp));
  row.try_emplace("pid", origin.pid);
  row.try_emplace("hostname", origin.hostname);
  row.try_emplace("node_ip", origin.node_ip);
  row.try_emplace("trial_id", IdOf(trial.number));
  row.try_emplace("done", result.done);
  if (result.checkpoint)
    row.try_emplace("checkpoint_dir_name", result.checkpoint->path.substr(result.checkpoint->path.rfind('/') + 1));
  return row;
}

void RunFiles::Log(const trials::Trial& trial, const TrialResult& result, const Origin& origin) {
  if (!options_.csv && !options_.json && !options_.tensorboard) return;
  Open& open = Loggers(trial);
  const Metrics metrics = Row(trial, result, origin);
  const loggers::Row row{&metrics, &trial.config, JsonOf(result), result.iteration,
                         origin.timestamp > 0 ? origin.timestamp : WallSeconds()};
  for (auto& logger : open.loggers) logger->Write(row);
  if (!std::exchange(open.dirty, true)) dirty_.push_back(trial.number);
}

bool RunFiles::Flush() {
  while (!dirty_.empty()) {
    auto found = open_.find(dirty_.back());
    if (found != open_.end()) {
      for (auto& logger : found->second.loggers) {
        if (logger->Flush()) continue;
        why_ = logger->why();
        return false;
      }
      found->second.dirty = false;
    }
    dirty_.pop_back();
  }
  return true;
}

void RunFiles::End(const trials::Trial& trial, double timestamp) {
  auto found = open_.find(trial.number);
  if (found == open_.end()) return;
  for (auto& logger : found->second.loggers) logger->End(timestamp);
  (void)Flush();
  open_.erase(found);
}

void RunFiles::Fail(const trials::Trial& trial, const std::string& text) {
  std::ofstream(options_.folder + "/" + FolderOf(trial) + "/error.txt", std::ios::app) << text << "\n";
}

void RunFiles::Policy(const PolicyLine& line) {
  std::string text = "[" + std::to_string(line.trial) + ", " + std::to_string(line.donor) + ", " +
                     std::to_string(line.trial_iteration) + ", " + std::to_string(line.donor_iteration) + ", ";
  loggers::AppendJson(text, line.donor_config);
  text += ", ";
  loggers::AppendJson(text, line.config);
  text += "]\n";
  const std::string own = options_.folder + "/pbt_policy_" + IdOf(line.trial) + ".txt";
  const std::string donor = options_.folder + "/pbt_policy_" + IdOf(line.donor) + ".txt";
  std::error_code error;
  if (fs::exists(donor, error)) fs::copy_file(donor, own, fs::copy_options::overwrite_existing, error);
  std::ofstream(options_.folder + "/pbt_global.txt", std::ios::app) << text;
  std::ofstream(own, std::ios::app) << text;
}

void RunFiles::Drop(const std::string& path) const {
  std::error_code error;
  fs::remove_all(options_.folder + "/" + path, error);
}

void RunFiles::Replayed(const trials::Trial& trial, const TrialResult& result) {
  if (options_.json || options_.csv) replayed_[trial.number].push_back(result);
}

void RunFiles::Reconcile(const trials::Controller& controller) {
  for (auto& [number, results] : replayed_) {
    auto folder = folders_.find(number);
    if (folder == folders_.end()) continue;
    const trials::Trial& trial = controller.trial(number);
    const std::string path = options_.folder + "/" + folder->second;
    const std::size_t json = CompleteLines(path + "/result.json");
    const std::size_t csv = CompleteLines(path + "/progress.csv");
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Metrics metrics = Row(trial, results[i], {});
      const loggers::Row row{&metrics, &trial.config, JsonOf(results[i]), results[i].iteration, WallSeconds()};
      if (options_.json && i >= json) loggers::MakeJsonLogger(path)->Write(row);
      if (options_.csv && i + 1 >= csv + (csv == 0 ? 1 : 0)) loggers::MakeCsvLogger(path)->Write(row);
    }
  }
  replayed_.clear();
}

void RunFiles::WriteState(const trials::Controller& controller) {
  std::string text = "{\"trials\": [";
  for (const trials::Trial& trial : controller.trials()) {
    if (trial.number > 0) text += ", ";
    Metrics facts;
    facts["trial_id"] = IdOf(trial.number);
    facts["status"] = std::string(trials::NameOf(trial.status));
    facts["training_iteration"] = trial.iteration;
    facts["folder"] = FolderOf(trial);
    std::string last;
    loggers::AppendJson(last, trial.last);
    const loggers::JsonValues json{{"last_result", last}};
    loggers::AppendJson(text, facts, &json, &trial.config);
  }
  text += "]}\n";
  const std::string path = options_.folder + "/experiment_state.json";
  std::ofstream(path + ".tmp") << text;
  std::error_code error;
  fs::rename(path + ".tmp", path, error);
}

}  // namespace manta::tune::runtime
