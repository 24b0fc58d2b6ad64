// Figure 6: bottom-up scheduling. How many requests go to the local scheduler and how many of these go up to the global
// one: none while the node has room, more as its queue grows beyond the threshold, all when it lacks what is asked for.
// The paper gives no numbers (the thickness of an arrow stands for a rate).
#include <manta/manta.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "figure.h"
#include "harness.h"
#include "nodes.h"

namespace {

using bench::Nodes;
using paper::Figure;
using paper::Number;

std::string WorkFor(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return manta::CurrentContext().node;
}

struct Counts {
  double tasks = 0;
  double requests = 0;   // to the local scheduler
  double questions = 0;  // to the global one
  double elsewhere = 0;  // tasks
};

// What a driver's tasks cost, from nothing to the last result. `together`: so many are submitted at a time.
Counts Run(const Nodes& nodes, std::size_t tasks, std::size_t together, int milliseconds, bool gpu) {
  const double requests = nodes.Status(1, "lease_requests");
  const double questions = nodes.Status(1, "lease_questions");
  Counts counts;
  {
    const Nodes::Driver driver(nodes);
    auto work = manta::Task(WorkFor);
    if (gpu) work.SetGpus(1);
    std::vector<manta::Ref<std::string>> refs;
    for (std::size_t done = 0; done < tasks; done += together) {
      refs.clear();
      for (std::size_t i = 0; i < together; ++i) refs.push_back(work.Remote(milliseconds));
      for (const auto& ref : refs) {
        ++counts.tasks;
        if (ref.Get() != "n1") ++counts.elsewhere;
      }
    }
  }
  counts.requests = nodes.Status(1, "lease_requests") - requests;
  counts.questions = nodes.Status(1, "lease_questions") - questions;
  return counts;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig6", "Figure 6: bottom-up scheduling, counted");
  bench::NodesOptions options;
  options.cpus = 2;
  options.words = {{}, {"--gpus", "1"}};
  const Nodes nodes(options);
  const int ms = 2;
  std::vector<std::vector<std::string>> rows{{"tasks of 2 ms on a node of 2 CPUs", "tasks",
                                              "requests to the local scheduler", "of these, sent up",
                                              "ran elsewhere %"}};
  const auto add = [&](const std::string& what, const Counts& counts) {
    rows.push_back({what, Number(counts.tasks), Number(counts.requests), Number(counts.questions),
                    Number(100 * counts.elsewhere / counts.tasks)});
  };
  paper::Series up{"questions to the global scheduler", paper::Mark::kMeasured, {}};
  paper::Series local{"requests to the local scheduler", paper::Mark::kMeasured, {}};
  for (const std::size_t together : {1U, 2U, 10U, 30U, 100U, 300U, 1000U}) {
    if (figure.quick() && together > 30) break;
    const std::size_t tasks = together <= 2 ? figure.Pick<std::size_t>(500, 20) : together;
    const Counts counts = Run(nodes, tasks, together, ms, false);
    add(std::to_string(together) + " at a time", counts);
    local.points.emplace_back(static_cast<double>(together), counts.requests);
    up.points.emplace_back(static_cast<double>(together), counts.questions);
  }
  const Counts gpu = Run(nodes, figure.Pick<std::size_t>(100, 5), 1, ms, true);
  add("1 at a time, needs a GPU, which only the other node has", gpu);
  if (gpu.questions < 1 || gpu.elsewhere < gpu.tasks) bench::Fail("tasks that need a GPU did not go up");
  figure.Table(rows);
  figure.Say("A lease serves many tasks, so both columns count leases asked for, not tasks.");
  figure.Draw({.title = "Bottom-up scheduling: requests per level",
               .note = {},
               .x = {"tasks submitted together, to a node with 2 CPUs", true, ""},
               .y = {"requests", false, ""},
               .series = {local, up}});
}

}  // namespace

int main(int argc, char** argv) { return paper::Main(argc, argv, Measure); }
