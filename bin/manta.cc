// manta, the command line: starts and stops clusters, shows them, drains nodes. Its commands are in cli/.
#include <cstdio>

#include "cli/command.h"
#include "parse.h"
#include "wire/secrets.h"

namespace manta::cli {

int Complain(const Status& status) {
  std::fprintf(stderr, "manta: %s\n", status.message().c_str());
  return 1;
}

}  // namespace manta::cli

int main(int argc, char** argv) {
  manta::cli::Line line("Manta's command line.");
  line.folder = manta::wire::Secrets::DefaultFolder();
  line.app.require_subcommand(1);
  line.app.fallthrough();
  line.app.set_version_flag("--version", "manta " MANTA_VERSION, "which release this is");
  line.app.add_option("--secrets", line.folder,
                      "folder of the cluster's token, state and logs (default $MANTA_SECRETS, else ~/.manta)");
  manta::cli::AddStart(line);
  manta::cli::AddStop(line);
  manta::cli::AddStatus(line);
  manta::cli::AddMemory(line);
  manta::cli::AddNodes(line);
  manta::cli::AddDrain(line);
  manta::cli::AddToken(line);
  manta::cli::AddCluster(line);
  manta::cli::AddLineage(line);
  manta::cli::AddReplay(line);
  manta::cli::AddTune(line);
  if (const auto wrong = manta::cli::Parse(line.app, "manta", argc, argv)) return *wrong;
  if (line.folder.empty()) {
    return manta::cli::Complain(manta::Status(manta::Code::kInvalid, "there is no HOME: say --secrets FOLDER"));
  }
  return line.chosen();
}
