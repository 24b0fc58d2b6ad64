// The folder of a job whose lineage is kept: STATE/jobs/NAME, of mode 0700, with
//   job                   which job it is, and how its program is started (JobNote)
//   lock                  held by the daemon of the job's driver while the job lives
//   lineage-NODE-RUN.log  what a node wrote in one run (lineage/file.h)
//
// A job that goes on where it was (resume) keeps its id and adds files; one that begins anew under the same name
// replaces what was there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::lineage {

struct JobNote {
  std::uint32_t version = 1;
  Id job;
  std::string name;
  std::string program;                 // path of the executable
  std::vector<std::string> arguments;  // argv
  std::string directory;               // it was started in
};

// Letters, digits, '.', '_' and '-', not beginning with '.'; up to 100.
[[nodiscard]] Status CheckJobName(const std::string& name);
[[nodiscard]] std::string FolderOf(const std::string& state, const std::string& name);
[[nodiscard]] Result<JobNote> ReadNote(const std::string& folder);
// Paths of its files of lineage, oldest first.
[[nodiscard]] std::vector<std::string> LineageFiles(const std::string& folder);
// Names of the jobs that are there, sorted.
[[nodiscard]] std::vector<std::string> JobsIn(const std::string& state);

class JobFolder {
 public:
  // For the daemon of the job's driver. With `resume`, *note is what was noted then, if there was such a job
  // (*resumed); else it is noted. kInvalid: a bad name; kUnavailable: the job lives; kIo.
  static Result<JobFolder> Open(const std::string& state, const std::string& name, bool resume, JobNote* note,
                                bool* resumed);
  // For another node of the same job.
  static Result<JobFolder> Join(const std::string& state, const std::string& name);

  // The path of a new file.
  [[nodiscard]] std::string NewFile(std::uint32_t node) const;
  [[nodiscard]] const std::string& path() const { return path_; }
  // Returns when the folder, its note and the names of its files are on disk. Takes as long as the disk does.
  Status Sync() const;
  // All of it.
  void Remove();

 private:
  std::string path_;
  base::Fd lock_;
};

}  // namespace manta::lineage
