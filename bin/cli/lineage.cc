// manta lineage: what jobs with a name have left.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "lineage/folder.h"
#include "lineage/scan.h"

namespace manta::cli {
namespace {

struct Options {
  std::string job;
  bool tasks = false;
  bool remove = false;
};

int ShowLineage(const std::string& state, const Options& options) {
  using lineage::TaskRecord;
  if (options.job.empty()) {
    const std::vector<std::string> jobs = lineage::JobsIn(state);
    for (const std::string& name : jobs) std::printf("%s\n", name.c_str());
    if (jobs.empty()) std::fprintf(stderr, "manta: no job has left anything in %s/jobs\n", state.c_str());
    return 0;
  }
  if (const Status status = lineage::CheckJobName(options.job); !status.ok()) return Complain(status);
  const std::string folder = lineage::FolderOf(state, options.job);
  const Result<lineage::JobNote> note = lineage::ReadNote(folder);
  if (!note.ok()) return Complain(note.status());
  if (options.remove) {
    lineage::JobNote same;
    bool resumed = false;
    Result<lineage::JobFolder> mine = lineage::JobFolder::Open(state, options.job, true, &same, &resumed);
    if (!mine.ok()) return Complain(mine.status());
    mine->Remove();
    return 0;
  }
  const Result<lineage::Scan> scan = lineage::ScanFolder(folder, [&](const TaskRecord& task) {
    if (options.tasks) std::printf("%s %s\n", ToHex(task.id).c_str(), task.function->name.c_str());
    return false;
  });
  if (!scan.ok()) return Complain(scan.status());
  const lineage::Totals& totals = scan.value().totals;
  std::printf("job %s (%s), %s\n", options.job.c_str(), ToHex(note.value().job).c_str(), note.value().program.c_str());
  std::printf("%llu calls, whose ids were derived; %llu finished, of which %llu failed\n",
              static_cast<unsigned long long>(totals.calls), static_cast<unsigned long long>(totals.finished),
              static_cast<unsigned long long>(totals.failed));
  std::printf("%llu bytes in %llu files, of %llu owners\n", static_cast<unsigned long long>(totals.bytes),
              static_cast<unsigned long long>(totals.files), static_cast<unsigned long long>(totals.streams));
  if (totals.torn > 0) {
    std::printf("%llu bytes at the end were not written whole, and are not counted\n",
                static_cast<unsigned long long>(totals.torn));
  }
  for (const lineage::Damage& damage : totals.damages) {
    std::fprintf(stderr, "manta: %s is damaged at offset %llu (%llu bytes)\n", damage.file.c_str(),
                 static_cast<unsigned long long>(damage.offset), static_cast<unsigned long long>(damage.bytes));
  }
  if (totals.lost_pieces > 0) {
    std::fprintf(stderr, "manta: %llu blocks after it cannot be read without what was there\n",
                 static_cast<unsigned long long>(totals.lost_pieces));
  }
  return totals.damages.empty() ? 0 : 1;
}

}  // namespace

void AddLineage(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* lineage =
      AddCommand(line, "lineage", "what a job with a name did, also after it was killed", options, &ShowLineage);
  lineage->add_option("job", options->job, "its name (default: lists those that left something)");
  lineage->add_flag("--tasks", options->tasks, "every call, by its id");
  lineage->add_flag("--remove", options->remove, "drops it; not of a job that runs");
}

}  // namespace manta::cli
