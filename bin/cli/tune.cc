// `manta tune`: tuning runs. The trainables of a run are Python functions, so the command is a part of the Python
// package, and this program hands over to it.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace manta::cli {
namespace {

struct TuneOptions {
  CLI::App* app = nullptr;
};

// Says what to install where the interpreter does not have the package.
constexpr const char* kHandOver = R"(
import importlib.util, runpy, sys
if importlib.util.find_spec("manta") is None:
    sys.exit(f"manta: {sys.executable} has no package manta. manta tune needs it: install manta-engine there, or name "
             "another interpreter with $MANTA_PYTHON.")
sys.argv[0] = "manta tune"
runpy.run_module("manta.tune", run_name="__main__")
)";

int Run(const std::string&, const TuneOptions& options) {
  const char* chosen = std::getenv("MANTA_PYTHON");
  std::vector<std::string> words = {chosen != nullptr ? chosen : "python3", "-c", kHandOver};
  const std::vector<std::string> rest = options.app->remaining();
  words.insert(words.end(), rest.begin(), rest.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return Complain(Status(Code::kIo, "cannot start " + words[0] + ": " + std::strerror(errno) +
                                        ". manta tune needs Python with the package manta-engine; $MANTA_PYTHON names "
                                        "the interpreter."));
}

}  // namespace

void AddTune(Line& line) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command =
      AddCommand(line, "tune", "tuning runs: ls, show, best, trials, logs, stop, resume, rm, export", options, &Run);
  command->allow_extras();
  command->prefix_command();
  command->fallthrough(false);
  options->app = command;
}

}  // namespace manta::cli
