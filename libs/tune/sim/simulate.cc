#include <cmath>
#include <stdexcept>
#include <string>
#include <variant>

#include "tune/sim/model.h"

namespace manta::tune::sim {
namespace {

std::unique_ptr<Scheduler> SchedulerOf(const SimulationOptions& options) {
  if (options.scheduler == "fifo") return MakeScheduler(Fifo{});
  if (options.scheduler == "asha")
    return MakeScheduler(Asha{.max_t = static_cast<double>(options.model.iterations), .seed = options.model.seed});
  if (options.scheduler == "median") return MakeScheduler(MedianStopping{.grace_period = 2});
  throw std::invalid_argument("there is no scheduler \"" + options.scheduler +
                              "\" in the simulation; use fifo, asha or median");
}

class Hash {
 public:
  void Add(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001B3ULL; }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325ULL;
};

}  // namespace

SimulationReport Simulate(const SimulationOptions& options) {
  trials::RunRules rules;
  rules.objectives = {{"loss", Mode::kMin}};
  rules.num_samples = options.trials;
  rules.failure.max_failures = options.max_failures;
  rules.failure.max_lost_in_a_row = 1000;
  rules.checkpoint.num_to_keep = 2;
  const Space space({{"x", Uniform(0, 1)}, {"y", Uniform(0, 1)}, {"act", Choice({"relu", "tanh"})}});
  auto counting =
      std::make_unique<CountingSearcher>(MakeSearcher(space, Random{.seed = options.model.seed, .num_samples = -1}));
  CountingSearcher& searcher = *counting;
  trials::Controller controller(std::move(rules), std::move(counting), SchedulerOf(options));
  Model model(options.model);
  SimulationReport report;
  Hash hash;
  while (!controller.ended()) {
    std::optional<Event> event = model.Next();
    if (!event) {
      if (std::isinf(controller.next_tick())) break;
      event = Event{controller.next_tick(), Tick{}};
    }
    std::vector<Action> actions = controller.Step(*event);
    hash.Add(event->body.index());
    for (const Action& action : actions) hash.Add(action.index());
    ++report.steps;
    model.Do(actions, controller, controller.now());
    for (const auto& [name, used] : controller.ledger().used()) {
      // Capacity may shrink below what is used; then the trials of the lost node fail in the following events.
      if (options.model.node_loss == 0 && used > controller.Total(name) + 1e-6)
        report.violations.push_back("resource " + name + " is over-committed");
    }
  }
  const trials::Counts& counts = controller.counts();
  report.trials = static_cast<std::int64_t>(controller.trials().size());
  report.terminated = counts.terminated;
  report.error = counts.error;
  report.results = counts.results;
  report.retries = counts.retries;
  report.lost_workers = model.lost_workers();
  report.lost_nodes = model.lost_nodes();
  report.virtual_seconds = controller.now();
  report.trace = hash.value();
  if (controller.best()) report.best = controller.trial(*controller.best()).cost;
  if (!controller.ended()) report.violations.push_back("the run did not end: nothing is under way");
  if (counts.terminated + counts.error != options.trials)
    report.violations.push_back(std::to_string(counts.terminated + counts.error) + " of " +
                                std::to_string(options.trials) + " trials ended");
  if (searcher.ended() != searcher.asked()) report.violations.push_back("the searcher was not told of every end");
  for (const auto& text : model.violations()) report.violations.push_back(text);
  for (const auto& text : searcher.violations()) report.violations.push_back(text);
  return report;
}

}  // namespace manta::tune::sim
