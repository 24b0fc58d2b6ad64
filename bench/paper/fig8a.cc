// Figure 8a: 1,000 tasks with one random argument each on two nodes, placed where the argument is or at random. The
// nodes are on two hosts, as far as Linux is concerned: network namespaces joined by a cable of their own, with an
// address each, so everything between them is encrypted. Without the rights for that: two nodes on loopback, and said
// so.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "between.h"
#include "figure.h"
#include "harness.h"
#include "nodes.h"

namespace {

using bench::Nodes;
using paper::Figure;
using paper::Number;

// Two namespaces and a cable; this process moves into the first. They go with this object.
class TwoHosts {
 public:
  TwoHosts() {
    const std::string id = std::to_string(::getpid());
    const std::string cable = "mp" + id;
    for (int i = 0; i < 2; ++i) names_[i] = "manta-paper-" + id + "-" + std::to_string(i + 1);
    home_ = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (::geteuid() != 0 || home_ < 0) return;
    const auto ip = [](std::vector<std::string> words) {
      words.insert(words.begin(), {"ip"});
      words = {"sh", "-c", Joined(words) + " && echo yes"};
      return !bench::RunProgram(words).empty();
    };
    up_ = ip({"netns", "add", names_[0]}) && ip({"netns", "add", names_[1]}) &&
          ip({"link", "add", cable, "netns", names_[0], "type", "veth", "peer", "name", cable, "netns", names_[1]});
    for (int i = 0; i < 2 && up_; ++i) {
      const std::string address = "10.213.88." + std::to_string(i + 1) + "/24";
      up_ = ip({"-n", names_[i], "addr", "add", address, "dev", cable}) &&
            ip({"-n", names_[i], "link", "set", cable, "up"}) && ip({"-n", names_[i], "link", "set", "lo", "up"});
    }
    const int first = up_ ? ::open(("/run/netns/" + names_[0]).c_str(), O_RDONLY | O_CLOEXEC) : -1;
    up_ = first >= 0 && ::setns(first, CLONE_NEWNET) == 0;
    if (first >= 0) ::close(first);
  }
  ~TwoHosts() {
    if (home_ >= 0) {
      ::setns(home_, CLONE_NEWNET);
      ::close(home_);
    }
    for (const std::string& name : names_) {
      static_cast<void>(bench::RunProgram({"sh", "-c", "ip netns del " + name + " 2>/dev/null"}));
    }
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  [[nodiscard]] bool up() const { return up_; }
  void Use(bench::NodesOptions* options) const {
    options->listen = "10.213.88.1:6400";
    options->before = {{}, {"nsenter", "--net=/run/netns/" + names_[1]}};
    options->words = {{}, {"--listen", "10.213.88.2:0"}};
  }

 private:
  static std::string Joined(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += word + " ";
    return line;
  }
  std::string names_[2];
  int home_ = -1;
  bool up_ = false;
};

struct Size {
  const char* name;
  std::size_t bytes;
  std::size_t tasks;
};

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig8a", "Figure 8a: tasks where their arguments are, and not");
  const TwoHosts hosts;
  bench::NodesOptions options;
  options.cpus = 4;
  options.store_bytes = 1ULL << 30;
  if (hosts.up()) hosts.Use(&options);
  figure.Say(hosts.up() ? "Two network namespaces, TLS between them."
                        : "On loopback: no rights to make network namespaces here (root and iproute2 are needed).");
  const Nodes nodes(options);
  const Nodes::Driver driver(nodes);
  const std::vector<Size> sizes = figure.quick() ? std::vector<Size>{{"100 KB", 100'000, 10}, {"10 MB", 10'000'000, 6}}
                                                 : std::vector<Size>{{"100 KB", 100'000, 1000},
                                                                     {"1 MB", 1'000'000, 1000},
                                                                     {"10 MB", 10'000'000, 300},
                                                                     {"100 MB", 100'000'000, 100}};
  std::vector<std::vector<std::string>> rows{
      {"argument", "placement", "tasks", "mean latency ms", "p50 ms", "ran beside it %", "the paper, ms"}};
  paper::Series series[2] = {{"locality aware", paper::Mark::kMeasured, {}}, {"unaware", paper::Mark::kMeasured, {}}};
  // Read off the plot's axis by the text: flat, and one to two orders of magnitude more at 10–100 MB.
  for (const Size& size : sizes) {
    for (const bool aware : {true, false}) {
      const bench::LocalityRun run = bench::Locality(size.bytes, size.tasks, aware, size.bytes);
      rows.push_back({size.name, aware ? "aware" : "at random", Number(static_cast<double>(size.tasks)),
                      Number(run.mean_us / 1e3), Number(run.p50_us / 1e3), Number(run.beside * 100),
                      aware                      ? "flat"
                      : size.bytes >= 10'000'000 ? "10–100 × aware"
                                                 : ""});
      series[aware ? 0 : 1].points.emplace_back(static_cast<double>(size.bytes), run.mean_us / 1e6);
    }
  }
  figure.Table(rows);
  const auto ratio = [](const paper::Series& one) {
    return Number(one.points.back().second / one.points.front().second);
  };
  figure.Say("Largest against smallest: aware " + ratio(series[0]) + " ×, at random " + ratio(series[1]) +
             " ×. Fewer tasks at the largest sizes than the paper's 1,000, since each has an argument of its own.");
  figure.Draw({.title = "Mean task latency by size of the argument",
               .note = {},
               .x = {"size of the argument", true, "B"},
               .y = {"mean task latency (s)", true, ""},
               .series = {series[0], series[1]}});
}

}  // namespace

int main(int argc, char** argv) { return paper::Main(argc, argv, Measure); }
