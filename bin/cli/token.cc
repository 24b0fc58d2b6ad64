// manta token: who may join the cluster.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "wire/authority.h"
#include "wire/join.h"
#include "wire/local_cluster.h"
#include "wire/secrets.h"

namespace manta::cli {
namespace {

using wire::LocalCluster;
using wire::Secrets;

struct Options {
  bool rotate = false;
  double grace = 60;
  int valid = 3600;
};

int ShowToken(const std::string& folder, const Options& options) {
  Result<std::shared_ptr<Secrets>> secrets = Secrets::Open(folder);
  if (!secrets.ok()) return Complain(secrets.status());
  if (options.rotate) {
    if (!wire::HasAuthority(folder)) {
      // A joined node would shut itself out. A cluster on one machine has no authority, and one folder.
      const Result<LocalCluster> here = LocalCluster::Read(folder);
      if (here.ok() && here.value().tls) {
        return Complain(Status(Code::kInvalid, Cat("the token is changed on the head, at ", here.value().head)));
      }
    }
    const auto grace = static_cast<std::int64_t>(options.grace);
    if (const Status status = (*secrets)->RotateToken(grace); !status.ok()) return Complain(status);
    std::printf("the cluster has a new token; its nodes are being told, the old one is accepted for %lld s more\n",
                static_cast<long long>(grace));
    return 0;
  }
  const Result<LocalCluster> local = LocalCluster::Read(folder);
  if (!local.ok()) return Complain(local.status());
  if (!local.value().tls) {
    std::fprintf(stderr,
                 "manta: the cluster at %s is on this machine only, and whoever may read %s may join it with `manta "
                 "start --join %s`; to let other machines in, start the head with --listen and an address of the "
                 "network\n",
                 local.value().head.c_str(), folder.c_str(), local.value().head.c_str());
    return 1;
  }
  const Result<std::string> token = wire::MakeJoinToken(**secrets, local.value().head, options.valid);
  if (!token.ok()) return Complain(token.status());
  std::printf("%s\n", token.value().c_str());
  return 0;
}

}  // namespace

void AddToken(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* token = AddCommand(line, "token", "prints a join token, good once", options, &ShowToken);
  CLI::Option* rotate =
      token->add_flag("--rotate", options->rotate, "instead: a new cluster token; nodes that are connected get it");
  token->add_option("--grace", options->grace, "seconds for which the old one is still accepted")
      ->check(CLI::Range(0.0, 1e6))
      ->needs(rotate)
      ->capture_default_str();
  token->add_option("--valid", options->valid, "seconds for which it is good")
      ->check(CLI::Range(1, kMaxValid))
      ->capture_default_str();
}

}  // namespace manta::cli
