#include "manta/tune/space.h"

#include <cmath>
#include <set>

#include "tune/search/encoding.h"

namespace manta::tune {
namespace {

Domain Number(Domain::Kind kind, double low, double high, double q, bool log) {
  Domain domain;
  domain.kind = kind;
  domain.low = low;
  domain.high = high;
  domain.q = q;
  domain.log = log;
  return domain;
}

Domain Values(Domain::Kind kind, std::vector<Value> values) {
  Domain domain;
  domain.kind = kind;
  domain.values = std::move(values);
  return domain;
}

std::string Text(double x) { return Describe(Value(x)); }

[[noreturn]] void Refuse(const std::string& path, const std::string& problem, const std::string& advice) {
  throw SpaceError(path + ": " + problem + ". " + advice);
}

void CheckRange(const std::string& path, const Domain& domain) {
  std::string range = "[" + Text(domain.low) + ", " + Text(domain.high) + "]";
  if (!std::isfinite(domain.low) || !std::isfinite(domain.high)) {
    Refuse(path, "the bounds " + range + " are not finite", "Give two numbers.");
  }
  if (domain.low > domain.high) {
    Refuse(path, "the lower bound of " + range + " is above the upper bound", "Exchange the two bounds.");
  }
  bool whole = domain.kind == Domain::Kind::kInt;
  if (domain.low == domain.high && !(whole && domain.q > 1)) {
    Refuse(path, "the range " + range + " is empty",
           whole ? "The upper bound is exclusive; raise it." : "Raise the upper bound.");
  }
  if (domain.log && domain.low <= 0) {
    Refuse(path, "a logarithmic range must begin above 0, but it begins at " + Text(domain.low),
           "Raise the lower bound.");
  }
  if (domain.q < 0) Refuse(path, "the step q = " + Text(domain.q) + " is negative", "Give a positive step.");
  if (domain.q > 0 && domain.q > domain.high - domain.low && !(whole && domain.q == 1)) {
    Refuse(path, "the step q = " + Text(domain.q) + " is larger than the range " + range,
           "Lower q or widen the range.");
  }
  if (domain.q > 0 && std::floor(domain.high / domain.q + 1e-9) < std::ceil(domain.low / domain.q - 1e-9)) {
    Refuse(path, "the range " + range + " has no multiple of q = " + Text(domain.q), "Lower q or widen the range.");
  }
}

void CheckDomain(const std::string& path, const Domain& domain) {
  switch (domain.kind) {
    case Domain::Kind::kFloat:
    case Domain::Kind::kInt:
      CheckRange(path, domain);
      break;
    case Domain::Kind::kNormal:
      if (!std::isfinite(domain.low) || !(domain.high > 0) || !std::isfinite(domain.high)) {
        Refuse(path, "the standard deviation " + Text(domain.high) + " is not positive", "Give a positive number.");
      }
      if (domain.q < 0) Refuse(path, "the step q = " + Text(domain.q) + " is negative", "Give a positive step.");
      break;
    case Domain::Kind::kChoice:
    case Domain::Kind::kGrid:
    case Domain::Kind::kConstant:
      if (domain.values.empty()) Refuse(path, "the list of values is empty", "Give at least one value.");
      break;
  }
}

}  // namespace

Domain Uniform(double low, double high) { return Number(Domain::Kind::kFloat, low, high, 0, false); }
Domain QUniform(double low, double high, double q) { return Number(Domain::Kind::kFloat, low, high, q, false); }
Domain LogUniform(double low, double high) { return Number(Domain::Kind::kFloat, low, high, 0, true); }
Domain QLogUniform(double low, double high, double q) { return Number(Domain::Kind::kFloat, low, high, q, true); }

namespace {
Domain Whole(std::int64_t low, std::int64_t high, std::int64_t q, bool log) {
  return Number(Domain::Kind::kInt, static_cast<double>(low), static_cast<double>(high), static_cast<double>(q), log);
}
}  // namespace

Domain RandInt(std::int64_t low, std::int64_t high) { return Whole(low, high, 1, false); }
Domain QRandInt(std::int64_t low, std::int64_t high, std::int64_t q) { return Whole(low, high, q, false); }
Domain LogRandInt(std::int64_t low, std::int64_t high) { return Whole(low, high, 1, true); }
Domain QLogRandInt(std::int64_t low, std::int64_t high, std::int64_t q) { return Whole(low, high, q, true); }
Domain RandN(double mean, double sd) { return Number(Domain::Kind::kNormal, mean, sd, 0, false); }
Domain QRandN(double mean, double sd, double q) { return Number(Domain::Kind::kNormal, mean, sd, q, false); }
Domain Choice(std::vector<Value> values) { return Values(Domain::Kind::kChoice, std::move(values)); }
Domain Grid(std::vector<Value> values) { return Values(Domain::Kind::kGrid, std::move(values)); }
Domain Constant(Value value) { return Values(Domain::Kind::kConstant, {std::move(value)}); }

Domain When(std::string parent, std::vector<Value> values, Domain domain) {
  domain.parent = std::move(parent);
  domain.parent_values = std::move(values);
  return domain;
}

Space::Space(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  std::set<std::string> known;
  for (const auto& [path, domain] : parameters_) {
    if (path.empty()) throw SpaceError("a key of the space is empty. Give it a name.");
    CheckDomain(path, domain);
    if (!domain.parent.empty() && !known.contains(domain.parent)) {
      Refuse(path, "its condition names the key " + domain.parent + ", which does not come before it",
             "Put " + domain.parent + " first.");
    }
    if (!known.insert(path).second) Refuse(path, "the key occurs twice", "Remove one of the two.");
  }
}

}  // namespace manta::tune
