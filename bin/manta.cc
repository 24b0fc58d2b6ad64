// manta, the command line: `manta status` shows the live clusters of this user on this machine.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "node/status.h"

namespace {

int ShowStatus(const std::string& address, bool json) {
  std::vector<std::string> addresses = manta::node::FindClusters();
  if (!address.empty()) addresses = {address};
  std::vector<manta::node::NodeStatus> nodes;
  std::string trouble;
  for (const std::string& one : addresses) {
    manta::Result<manta::wire::StatusReply> reply = manta::node::AskStatus(one);
    if (reply.ok()) {
      nodes.push_back({one, std::move(*reply)});
    } else {
      trouble += "manta: " + one + ": " + reply.status().message() + "\n";
    }
  }
  std::fputs(trouble.c_str(), stderr);
  if (nodes.empty()) {
    if (trouble.empty()) {
      std::fprintf(stderr,
                   "manta: no cluster of user %u runs on this machine; one starts with manta::Init() or `mantad`\n",
                   getuid());
    }
    return 1;
  }
  const std::string text = json ? manta::node::StatusJson(nodes) : manta::node::StatusTable(nodes);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Manta's command line.");
  app.require_subcommand(1);
  std::string address;
  bool json = false;
  CLI::App* status = app.add_subcommand("status", "nodes, resources in use, tasks and memory of live local clusters");
  status->add_option("--address", address, "of one node, as '@manta-1000-4711'");
  status->add_flag("--json", json, "for programs");
  CLI11_PARSE(app, argc, argv);
  return ShowStatus(address, json);
}
