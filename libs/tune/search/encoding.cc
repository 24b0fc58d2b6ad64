#include "tune/search/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tune/search/random.h"

namespace manta::tune {
namespace {

constexpr double kBelowOne = 1 - 0x1p-53;

double AsNumber(const std::string& path, const Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<bool>(&value)) return *number ? 1 : 0;
  throw SpaceError(path + ": the value " + Describe(value) + " is not a number. Give a number.");
}

// The first and the last multiple of the step, as counts of steps.
std::pair<double, double> Steps(const Domain& domain) {
  double last = domain.high;
  if (domain.kind == Domain::Kind::kInt && domain.q <= 1) last -= 1;  // exclusive
  double q = domain.q > 0 ? domain.q : 1;
  return {std::ceil(domain.low / q - 1e-9), std::floor(last / q + 1e-9)};
}

Encoding::Coordinate MakeCoordinate(const std::string& path, const Domain& domain) {
  Encoding::Coordinate result;
  result.path = path;
  result.domain = domain;
  bool stepped = domain.q > 0;
  switch (domain.kind) {
    case Domain::Kind::kFloat:
    case Domain::Kind::kInt: {
      double low = domain.low;
      double high = domain.high;
      if (stepped) {
        auto [first, last] = Steps(domain);
        result.cells = static_cast<int>(std::min(last - first + 1, 1e9));
        low = (first - 0.5) * domain.q;
        high = (last + 0.5) * domain.q;
        if (domain.log && low <= 0) low = domain.low / 2;
      }
      result.low = domain.log ? std::log(low) : low;
      result.high = domain.log ? std::log(high) : high;
      break;
    }
    case Domain::Kind::kNormal:
      break;
    default:
      result.cells = static_cast<int>(domain.values.size());
      result.ordered = false;
  }
  return result;
}

bool Holds(const Domain& domain, const Config& config) {
  if (domain.parent.empty()) return true;
  auto parent = config.find(domain.parent);
  return parent != config.end() &&
         std::ranges::find(domain.parent_values, parent->second) != domain.parent_values.end();
}

}  // namespace

std::string Describe(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", std::get<double>(value));
  return buffer;
}

std::string Describe(const Config& config) {
  std::string text;
  for (const auto& [path, value] : config) {
    if (!text.empty()) text += ' ';
    text += path + "=" + Describe(value);
  }
  return text;
}

Encoding::Encoding(const Space& space) : space_(space) {
  for (const auto& [path, domain] : space.parameters()) {
    if (domain.kind != Domain::Kind::kConstant) coordinates_.push_back(MakeCoordinate(path, domain));
  }
}

Value Encoding::At(const Coordinate& coordinate, double u) {
  const Domain& domain = coordinate.domain;
  u = std::clamp(u, 0.0, kBelowOne);
  if (!coordinate.ordered) return domain.values[static_cast<std::size_t>(u * coordinate.cells)];
  double x = 0;
  if (domain.kind == Domain::Kind::kNormal) {
    x = domain.low + domain.high * NormalQuantile(std::max(u, 0x1p-54));
    if (domain.q > 0) x = std::round(x / domain.q) * domain.q;
    return x;
  }
  x = coordinate.low + u * (coordinate.high - coordinate.low);
  if (domain.log) x = std::exp(x);
  if (domain.q > 0) {
    auto [first, last] = Steps(domain);
    x = std::clamp(std::round(x / domain.q), first, last) * domain.q;
  } else {
    x = std::clamp(x, domain.low, domain.high);
  }
  if (domain.kind == Domain::Kind::kInt) return static_cast<std::int64_t>(std::llround(x));
  return x;
}

std::pair<double, double> Encoding::Cell(const Coordinate& coordinate, double u) {
  u = std::clamp(u, 0.0, kBelowOne);
  if (!coordinate.ordered) {
    double cell = std::floor(u * coordinate.cells);
    return {cell / coordinate.cells, (cell + 1) / coordinate.cells};
  }
  const Domain& domain = coordinate.domain;
  double width = coordinate.high - coordinate.low;
  auto [first, last] = Steps(domain);
  double x = coordinate.low + u * width;
  double step = std::clamp(std::round((domain.log ? std::exp(x) : x) / domain.q), first, last);
  auto edge = [&](double steps) {
    x = steps * domain.q;
    return ((domain.log ? std::log(x) : x) - coordinate.low) / width;
  };
  return {step == first ? 0 : edge(step - 0.5), step == last ? 1 : edge(step + 0.5)};
}

double Encoding::Unit(const Coordinate& coordinate, const Value& value) {
  const Domain& domain = coordinate.domain;
  if (!coordinate.ordered) {
    auto found = std::ranges::find(domain.values, value);
    if (found == domain.values.end()) {
      throw SpaceError(coordinate.path + ": the value " + Describe(value) +
                       " is not among the choices. Choose one of them.");
    }
    return (static_cast<double>(found - domain.values.begin()) + 0.5) / coordinate.cells;
  }
  double x = AsNumber(coordinate.path, value);
  if (domain.kind == Domain::Kind::kNormal) return NormalCdf((x - domain.low) / domain.high);
  if (!(x >= domain.low && x <= domain.high)) {
    throw SpaceError(coordinate.path + ": the value " + Describe(value) + " is outside of [" +
                     Describe(Value(domain.low)) + ", " + Describe(Value(domain.high)) + "]. Give a value inside.");
  }
  if (domain.log) x = std::log(x);
  return std::clamp((x - coordinate.low) / (coordinate.high - coordinate.low), 0.0, 1.0);
}

Config Encoding::Decode(std::span<const double> unit) const {
  Config config;
  std::size_t next = 0;
  for (const auto& [path, domain] : space_.parameters()) {
    bool constant = domain.kind == Domain::Kind::kConstant;
    const double u = constant ? 0 : unit[next];
    if (Holds(domain, config))
      config[path] = constant ? domain.values[0] : At(coordinates_[next], std::isnan(u) ? 0.5 : u);
    if (!constant) ++next;
  }
  return config;
}

std::vector<double> Encoding::Encode(const Config& config) const {
  std::vector<double> unit;
  unit.reserve(coordinates_.size());
  for (const Coordinate& coordinate : coordinates_) {
    auto found = config.find(coordinate.path);
    unit.push_back(found == config.end() ? std::numeric_limits<double>::quiet_NaN() : Unit(coordinate, found->second));
  }
  return unit;
}

}  // namespace manta::tune
