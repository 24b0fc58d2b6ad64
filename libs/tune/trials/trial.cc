#include "tune/trials/trial.h"

namespace manta::tune::trials {

const char* NameOf(Status status) {
  switch (status) {
    case Status::kPending:
      return "PENDING";
    case Status::kRunning:
      return "RUNNING";
    case Status::kPaused:
      return "PAUSED";
    case Status::kTerminated:
      return "TERMINATED";
    case Status::kError:
      break;
  }
  return "ERROR";
}

std::optional<double> NumberOf(const Metrics& metrics, std::int64_t iteration, double time_total,
                               const std::string& key) {
  auto found = metrics.find(key);
  if (found == metrics.end()) {
    if (key == "training_iteration") return static_cast<double>(iteration);
    if (key == "time_total_s") return time_total;
    return std::nullopt;
  }
  if (const auto* number = std::get_if<double>(&found->second)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&found->second)) return static_cast<double>(*integer);
  if (const auto* yes = std::get_if<bool>(&found->second)) return *yes ? 1 : 0;
  return std::nullopt;
}

std::optional<double> NumberOf(const Trial& trial, const std::string& key) {
  if (!trial.has_result) return std::nullopt;
  return NumberOf(trial.last, trial.iteration, trial.time_total, key);
}

}  // namespace manta::tune::trials
