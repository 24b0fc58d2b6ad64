// manta start, manta stop: the head and the nodes of a cluster, which go on when the command has ended.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "node/launch.h"
#include "wire/address.h"
#include "wire/join.h"
#include "wire/local_cluster.h"
#include "wire/secrets.h"

namespace manta::cli {
namespace {

using wire::LocalCluster;
using wire::LocalProcess;
using wire::Secrets;

struct Options {
  bool head = false;
  std::string join;
  std::string token_file;
  std::string listen;
  bool tls = false;
  std::string name;
  std::string cpus;
  std::string gpus;
  std::vector<std::string> labels;
  std::vector<std::string> redis;
  std::string redis_password_file;
  int valid = 3600;
  HeadFlags head_flags;
  NodeFlags node_flags;
};

std::vector<std::string> NodeWords(const Options& options) {
  std::vector<std::string> words = options.node_flags.Words();
  AddWord("--cpus", options.cpus, &words);
  AddWord("--gpus", options.gpus, &words);
  AddWord("--store-bytes", options.node_flags.store_bytes, &words);
  for (const std::string& one : options.labels) AddWord("--label", one, &words);
  return words;
}

void SayHowToJoin(const std::string& folder, const Options& options, const LocalCluster& cluster) {
  std::printf("the head listens at %s%s\n", cluster.head.c_str(), cluster.tls ? " (TLS)" : "");
  for (const LocalProcess& node : cluster.nodes) {
    std::printf("its first node (pid %d): MANTA_ADDRESS=%s\n", node.pid, node.address.c_str());
  }
  if (!cluster.tls) {
    std::printf("another node on this machine: manta start --join %s\n", cluster.head.c_str());
    return;
  }
  Result<std::shared_ptr<Secrets>> secrets = Secrets::Open(folder);
  if (!secrets.ok()) return;
  const Result<std::string> token = wire::MakeJoinToken(**secrets, cluster.head, options.valid);
  if (!token.ok()) {
    Complain(token.status());
    return;
  }
  std::printf(
      "another machine, once (`manta token` makes more): manta start --join %s --token-file -\n"
      "and paste there: %s\n",
      cluster.head.c_str(), token.value().c_str());
}

int StartHead(const std::string& folder, const Options& options) {
  LocalCluster cluster;
  if (Result<LocalCluster> before = LocalCluster::Read(folder); before.ok()) {
    std::erase_if(before->nodes, [](const LocalProcess& node) { return !node.Alive(); });
    if (before->control.Alive()) {
      return Complain(Status(Code::kInvalid, Cat("the head of a cluster runs here already, at ", before->head,
                                                 "; `manta stop` stops it")));
    }
    // The head has died under its nodes: it comes back where they look for it.
    if (!before->nodes.empty()) cluster = std::move(*before);
  }
  node::HeadOptions head;
  head.folder = folder;
  if (!options.listen.empty()) head.listen = options.listen;
  if (!cluster.head.empty()) head.listen = cluster.head;
  head.tls = options.tls || cluster.tls;
  for (const std::string& one : options.redis) AddWord("--redis", one, &head.words);
  AddWord("--redis-password-file", options.redis_password_file, &head.words);
  options.head_flags.Tell(&head);
  for (const LocalProcess& one : cluster.schedulers) node::StopProcess(one, kAnswerUs);  // of the one that died
  const Result<node::StartedHead> started = node::StartHead(head);
  if (!started.ok()) return Complain(started.status());
  const bool back = !cluster.nodes.empty();
  cluster.schedulers = started.value().schedulers;
  cluster.head = started.value().address;
  cluster.tls = started.value().tls;
  cluster.control = started.value().process;
  if (!back) {
    node::NodeOptions node{folder, cluster.head, options.name, "", cluster.tls, NodeWords(options), false};
    AddWord("--resource", "node:__internal_head__=1", &node.words);  // as Ray calls it
    Result<std::vector<LocalProcess>> nodes = node::StartNodes({node});
    if (!nodes.ok()) {
      for (const LocalProcess& one : cluster.schedulers) node::StopProcess(one, kAnswerUs);
      node::StopProcess(cluster.control, kAnswerUs);
      return Complain(nodes.status());
    }
    cluster.nodes = std::move(*nodes);
  }
  if (const Status status = cluster.Write(folder); !status.ok()) return Complain(status);
  SayHowToJoin(folder, options, cluster);
  return 0;
}

// From a file or standard input ("-"). Never from an argument or a variable: other processes can read both in /proc.
Result<std::string> JoinTokenOf(const Options& options) {
  std::string token;
  if (options.token_file.empty()) return token;
  std::ifstream file(options.token_file == "-" ? "/dev/stdin" : options.token_file);
  if (!std::getline(file, token)) return Status(Code::kInvalid, Cat("no token in ", options.token_file));
  return token;
}

// Before anything is started or written. Who listens there is the daemon's business: a head may be about to come back.
Status CheckAddress(const std::string& list) {
  std::istringstream addresses(list);
  for (std::string one; std::getline(addresses, one, ',');) {
    const Result<wire::Address> address = wire::ParseAddress(one);
    if (!address.ok()) return address.status();
    if (const Status found = wire::Resolve(address.value()).status(); !found.ok()) return found;
  }
  return {};
}

int StartNode(const std::string& folder, const Options& options) {
  if (const Status status = CheckAddress(options.join); !status.ok()) return Complain(status);
  const Result<std::string> token = JoinTokenOf(options);
  if (!token.ok()) return Complain(token.status());
  if (!token.value().empty() && !Secrets::Open(folder).ok()) {
    const Status joined = wire::Join(token.value(), folder, {});
    if (!joined.ok()) return Complain(joined);
  }
  const bool listens_wide = !options.listen.empty() && !node::IsLoopback(options.listen);
  const bool tls = options.tls || !node::IsLoopback(options.join) || listens_wide;
  if (!Secrets::Open(folder).ok()) {
    return Complain(Status(Code::kInvalid, Cat("this machine does not belong to the cluster at ", options.join,
                                               " yet: get a join token from its head with `manta token`, and give it "
                                               "with --token-file")));
  }
  node::NodeOptions node{folder, options.join, options.name, options.listen, tls, NodeWords(options), false};
  Result<std::vector<LocalProcess>> nodes = node::StartNodes({node});
  if (!nodes.ok()) return Complain(nodes.status());
  LocalCluster cluster;
  if (Result<LocalCluster> before = LocalCluster::Read(folder); before.ok() && before->head == options.join) {
    cluster = std::move(*before);
    std::erase_if(cluster.nodes, [](const LocalProcess& one) { return !one.Alive(); });
  }
  cluster.head = options.join;
  cluster.tls = tls;
  cluster.nodes.push_back(nodes->front());
  if (const Status status = cluster.Write(folder); !status.ok()) return Complain(status);
  std::printf("this node (pid %d) has joined the cluster at %s: MANTA_ADDRESS=%s\n", nodes->front().pid,
              options.join.c_str(), nodes->front().address.c_str());
  return 0;
}

int Start(const std::string& folder, const Options& options) {
  if (!options.head && options.join.empty()) {
    return Complain(Status(Code::kInvalid, "say --head, or --join ADDRESS of a head"));
  }
  if (options.name.find_first_of(" \t\n") != std::string::npos) {
    return Complain(Status(Code::kInvalid, Cat("'", options.name, "' is no name of a node: it has spaces")));
  }
  return options.head ? StartHead(folder, options) : StartNode(folder, options);
}

struct Nothing {};

int Stop(const std::string& folder, const Nothing&) {
  if (const Status status = node::StopLocal(folder); !status.ok()) {
    return Complain(status.code() == Code::kNotFound ? Status(Code::kNotFound, Cat("nothing was started from ", folder))
                                                     : status);
  }
  std::printf("stopped\n");
  return 0;
}

}  // namespace

void AddStart(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* start =
      AddCommand(line, "start", "starts the head of a cluster, or a node that joins one", options, &Start);
  CLI::Option* head = start->add_flag("--head", options->head, "a new cluster, with its first node on this machine");
  CLI::Option* join =
      start->add_option("--join", options->join, "the address of a head: this machine becomes a node of its cluster")
          ->excludes(head);
  start
      ->add_option("--token-file", options->token_file,
                   "a file with the join token that the head printed, or - for standard input")
      ->needs(join);
  start->add_option("--listen", options->listen,
                    "host:port; beyond this machine everything is encrypted (default 127.0.0.1:6400 for the head)");
  start->add_flag("--tls", options->tls, "encrypt on this machine, too");
  start->add_option("--name", options->name, "of the node (default n and its number)");
  start->add_option("--cpus", options->cpus, "CPUs to share out (default: all)");
  start->add_option("--gpus", options->gpus, "GPUs to share out");
  start->add_option("--label,--labels", options->labels, "KEY=VALUE,... that tasks can ask for; repeat for more");
  CLI::Option* redis =
      start->add_option("--redis", options->redis, "keep the head's tables in Redis 7: unix:/path or host:port; repeat")
          ->needs(head);
  start->add_option("--redis-password-file", options->redis_password_file, "its password; mode 0600")->needs(redis);
  start->add_option("--valid", options->valid, "seconds for which the printed join token is good")
      ->check(CLI::Range(1, kMaxValid))
      ->needs(head)
      ->capture_default_str();
  options->head_flags.AddTo(*start);
  for (const char* one : {"--job-quota", "--schedulers"}) start->get_option(one)->needs(head);
  options->node_flags.AddTo(*start);
}

void AddStop(Line& line) {
  AddCommand(line, "stop", "stops what was started here; on the head, the whole cluster", std::make_shared<Nothing>(),
             &Stop);
}

}  // namespace manta::cli
