// manta status, manta memory: what the nodes of this machine say of themselves.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/command.h"
#include "node/status.h"

namespace manta::cli {
namespace {

struct Options {
  std::string address;
  bool json = false;
};

std::vector<std::string> Addresses(const Options& options) {
  return options.address.empty() ? node::FindClusters() : std::vector<std::string>{options.address};
}

int ShowStatus(const std::string&, const Options& options) {
  std::vector<node::NodeStatus> nodes;
  std::string trouble;
  for (const std::string& one : Addresses(options)) {
    Result<wire::StatusReply> reply = node::AskStatus(one);
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
                   "manta: no cluster of user %u runs on this machine; one starts with manta::Init(), `manta start "
                   "--head` or `mantad`\n",
                   getuid());
    }
    return 1;
  }
  const std::string text = options.json ? node::StatusJson(nodes) : node::StatusTable(nodes);
  std::fputs(text.c_str(), stdout);
  return 0;
}

int ShowMemory(const std::string&, const Options& options) {
  const std::vector<std::string> addresses = Addresses(options);
  if (addresses.empty()) {
    return Complain(Status(Code::kNotFound, Cat("no cluster of user ", getuid(), " runs on this machine")));
  }
  int trouble = 0;
  for (const std::string& address : addresses) {
    const Result<wire::MemoryReply> reply = node::AskMemory(address);
    if (reply.ok()) {
      std::fputs(node::MemoryTable(reply.value()).c_str(), stdout);
    } else {
      trouble = Complain(Status(reply.status().code(), Cat(address, ": ", reply.status().message())));
    }
  }
  return trouble;
}

}  // namespace

void AddStatus(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* status = AddCommand(line, "status", "nodes, resources in use, tasks and memory of live local clusters",
                                options, &ShowStatus);
  status->add_option("--address", options->address, "of one node, as '@manta-1000-4711'");
  status->add_flag("--json", options->json, "for programs");
}

void AddMemory(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* memory = AddCommand(
      line, "memory", "the large objects of live local clusters: size, owner, holders, readers", options, &ShowMemory);
  memory->add_option("--address", options->address, "of one node, as '@manta-1000-4711'");
}

}  // namespace manta::cli
