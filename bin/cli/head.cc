// manta nodes, manta drain: what the head of a running cluster is asked.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "node/head_tool.h"
#include "node/status.h"
#include "wire/local_cluster.h"
#include "wire/secrets.h"

namespace manta::cli {
namespace {

struct Options {
  std::string address;
  bool json = false;
  bool all = false;
  std::string node;
  double timeout = 3600;
};

Result<std::unique_ptr<node::HeadTool>> Head(const std::string& folder, const Options& options) {
  std::string address = options.address;
  if (address.empty()) {
    const Result<wire::LocalCluster> local = wire::LocalCluster::Read(folder);
    if (!local.ok()) {
      return Status(Code::kNotFound, Cat("no cluster was started from ", folder,
                                         "; `manta start --head` starts one, --address names another's head"));
    }
    address = local.value().head;
  }
  Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(folder);
  if (!secrets.ok()) return secrets.status();
  return node::HeadTool::Connect(address, std::move(*secrets), kAnswerUs);
}

int ShowNodes(const std::string& folder, const Options& options) {
  const Result<std::unique_ptr<node::HeadTool>> head = Head(folder, options);
  if (!head.ok()) return Complain(head.status());
  const Result<wire::ClusterView> view = head.value()->View(options.all, kAnswerUs);
  if (!view.ok()) return Complain(view.status());
  const std::vector<wire::NodeFacts>& nodes = view.value().nodes;
  const std::string text =
      options.json ? node::NodesJson(nodes) : node::NodesTable(nodes) + node::ViewNotes(view.value());
  std::fputs(text.c_str(), stdout);
  return 0;
}

int Drain(const std::string& folder, const Options& options) {
  const Result<std::unique_ptr<node::HeadTool>> head = Head(folder, options);
  if (!head.ok()) return Complain(head.status());
  const Status status = head.value()->Drain(options.node, static_cast<std::int64_t>(options.timeout * 1e6));
  if (!status.ok()) return Complain(status);
  std::printf("node %s has left\n", options.node.c_str());
  return 0;
}

}  // namespace

void AddNodes(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* nodes = AddCommand(line, "nodes", "the nodes of the cluster", options, &ShowNodes);
  nodes->add_option("--address", options->address, "of its head (default: as it was started here)");
  nodes->add_flag("--all", options->all, "also those that left or died");
  nodes->add_flag("--json", options->json, "for programs");
}

void AddDrain(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* drain = AddCommand(line, "drain", "lets a node finish, gives it nothing new, and waits until it has left",
                               options, &Drain);
  drain->add_option("node", options->node, "its name or number")->required();
  drain->add_option("--address", options->address, "of the head (default: as it was started here)");
  drain->add_option("--timeout", options->timeout, "seconds")->capture_default_str();
}

}  // namespace manta::cli
