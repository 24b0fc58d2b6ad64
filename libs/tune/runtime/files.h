// RunFiles is the folder of a run: a folder for each trial with the files of its loggers (section "Files" of
// doc/tune.md). The journal is the state of the run; these files are for people and other programs. After a restore,
// results that are in the journal but not in a trial's files are appended, so that none is missing and none is there
// twice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "manta/tune/executor.h"
#include "tune/loggers/loggers.h"
#include "tune/trials/controller.h"

namespace manta::tune::runtime {

struct FileOptions {
  std::string folder;  // of the run, absolute; exists
  std::string trainable = "train";
  std::string run_id;  // five characters, the first part of a trial's id
  bool csv = true, json = true, tensorboard = true;
  std::size_t max_folder_name = 130;
};

class RunFiles {
 public:
  explicit RunFiles(FileOptions options);

  std::string IdOf(TrialNumber trial) const;         // "3f2a1_00017"
  std::string FolderOf(const trials::Trial& trial);  // relative; made up when the trial has none yet
  std::string Prepare(const trials::Trial& trial);   // creates the folder; returns its absolute path
  void Log(const trials::Trial& trial, const TrialResult& result, const Origin& origin);
  void End(const trials::Trial& trial, double timestamp);          // closes the trial's files
  void Fail(const trials::Trial& trial, const std::string& text);  // error.txt
  void Policy(const PolicyLine& line);                             // pbt_global.txt, pbt_policy_<id>.txt
  void Drop(const std::string& path) const;                        // a checkpoint's folder
  bool Flush();                                                    // false: the disk is full
  const std::string& why() const { return why_; }
  // experiment_state.json: for people and scripts.
  void WriteState(const trials::Controller& controller);

  // In a replay: counts a result that the files may hold already.
  void Replayed(const trials::Trial& trial, const TrialResult& result);
  // After the replay: appends what is missing.
  void Reconcile(const trials::Controller& controller);

 private:
  struct Open {
    std::vector<std::unique_ptr<loggers::Logger>> loggers;
    bool dirty = false;
  };
  Open& Loggers(const trials::Trial& trial);
  Metrics Row(const trials::Trial& trial, const TrialResult& result, const Origin& origin) const;

  FileOptions options_;
  std::unordered_map<TrialNumber, std::string> folders_;
  std::unordered_map<TrialNumber, Open> open_;
  std::vector<TrialNumber> dirty_;
  std::unordered_map<TrialNumber, std::vector<TrialResult>> replayed_;
  std::string why_;
};

}  // namespace manta::tune::runtime
