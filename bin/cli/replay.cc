// manta replay: recorded tasks run again, alone.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "lineage/folder.h"
#include "lineage/scan.h"

namespace manta::cli {
namespace {

struct Options {
  std::string job;
  std::string task;
  std::uint64_t sample = 0;
  bool gdb = false;
};

// The one task whose id begins so, of that job or of any.
Result<std::string> FindTask(const std::string& state, const Options& options, std::string* folder) {
  std::vector<std::string> jobs{options.job};
  if (options.job.empty()) jobs = lineage::JobsIn(state);
  if (options.task.size() < 6) return Status(Code::kInvalid, "give at least the first 6 digits of the task's id");
  std::string found;
  for (const std::string& job : jobs) {
    const std::string here = lineage::FolderOf(state, job);
    const Result<lineage::Scan> scan = lineage::ScanFolder(
        here, [&](const lineage::TaskRecord& task) { return ToHex(task.id).rfind(options.task, 0) == 0; });
    if (!scan.ok()) continue;
    for (const lineage::Found& one : scan.value().found) {
      if (!found.empty()) {
        return Status(Code::kInvalid, Cat("more than one task begins with ", options.task, ": give more of its id"));
      }
      found = ToHex(one.id);
      *folder = here;
    }
  }
  if (found.empty()) {
    return Status(Code::kNotFound, Cat("no task ", options.task, " is recorded under ", state,
                                       "/jobs; only jobs with a name (Config::job) leave lineage, and only if they "
                                       "crash, a task fails, or Config::keep_lineage is set"));
  }
  return found;
}

int Replay(const std::string& state, const Options& options) {
  std::string folder = lineage::FolderOf(state, options.job);
  std::string which = Cat("sample:", options.sample);
  if (options.sample == 0) {
    Result<std::string> task = FindTask(state, options, &folder);
    if (!task.ok()) return Complain(task.status());
    which = std::move(*task);
  } else if (options.job.empty()) {
    return Complain(Status(Code::kInvalid, "--sample needs --job NAME"));
  }
  const Result<lineage::JobNote> note = lineage::ReadNote(folder);
  if (!note.ok()) return Complain(note.status());
  setenv("MANTA_REPLAY", folder.c_str(), 1);
  setenv("MANTA_REPLAY_TASKS", which.c_str(), 1);
  if (!note.value().directory.empty() && chdir(note.value().directory.c_str()) != 0) {
    std::fprintf(stderr, "manta: the job's folder %s is gone; the task runs in this one\n",
                 note.value().directory.c_str());
  }
  std::vector<std::string> words;
  if (options.gdb) {
    words = {"gdb", "-q",  "-ex",    "set breakpoint pending on", "-ex", "break manta_replay_begin",
             "-ex", "run", "--args", note.value().program};
  } else {
    words = {note.value().program};
  }
  const std::vector<std::string>& arguments = note.value().arguments;
  if (!arguments.empty()) words.insert(words.end(), arguments.begin() + 1, arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return Complain(Status(Code::kIo, Cat("cannot start ", words[0], ": ", std::strerror(errno))));
}

}  // namespace

void AddReplay(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* replay =
      AddCommand(line, "replay", "runs a recorded task again, alone, and compares its result", options, &Replay);
  replay->add_option("task", options->task, "its id, or the first digits of it");
  replay->add_option("--job", options->job, "the name of its job (default: look in all)");
  replay->add_option("--sample", options->sample, "instead: so many tasks of the job, from all over it");
  replay->add_flag("--gdb", options->gdb, "under gdb, stopped before the task");
}

}  // namespace manta::cli
