// Looking through the lineage that a job has left: how much there is, and single calls with all that is known of them.
// Reads the files from beginning to end, in memory that does not grow with them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lineage/file.h"
#include "lineage/record.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::lineage {

// A call that was looked for.
struct Found {
  struct Outcome {
    std::uint32_t index = 0;
    OutcomeKind kind = OutcomeKind::kValue;
    std::vector<std::byte> value;
    std::uint64_t size = 0;
    Code code = Code::kOk;
    std::string message;
  };
  Id id;
  std::uint64_t program = 0;  // hash of the build that called it
  CallOrigin origin;
  Function function;
  std::vector<std::byte> arguments;
  bool whole = true;
  std::vector<Outcome> outcomes;  // one for each return that is known; the first that was

  [[nodiscard]] const Outcome* OutcomeOf(std::uint32_t index) const;
  // As it stood in its owner's log, for whoever runs it.
  [[nodiscard]] std::vector<std::byte> Spec() const;
};

struct Totals {
  std::uint64_t calls = 0;  // whose ids were derived
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t streams = 0;  // owners that called something
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t torn = 0;  // bytes at the ends of files that were not written whole
  std::uint64_t lost_pieces = 0;
  std::vector<Damage> damages;
};

struct Scan {
  Totals totals;
  std::vector<Found> found;  // in the order in which they were called
};

// `wanted(id)` says which to find, or nothing. A call that stands there more than once (its caller ran again) is found
// once. kNotFound: nothing is there.
Result<Scan> ScanFolder(const std::string& folder, const std::function<bool(const TaskRecord&)>& wanted);

// Names of the large values among its arguments, which are not in the record.
[[nodiscard]] std::vector<Id> InputsOf(const Found& call);

}  // namespace manta::lineage
