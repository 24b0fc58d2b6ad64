// Search spaces: which values each key of a configuration may take.
//
//   tune::Space space({{"lr", tune::LogUniform(1e-4, 1)}, {"model/act", tune::Choice({"relu", "tanh"})}});
//
// A key path joins nested keys with "/". The constructor of Space checks every domain and throws SpaceError, whose text
// begins with the key path. A Space is an immutable value; threads may share it.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace manta::tune {

using Value = std::variant<bool, std::int64_t, double, std::string>;

// Key path to value. Keys whose condition does not hold (When) are absent.
using Config = std::map<std::string, Value>;

struct SpaceError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The values of one key. The functions below build it; Space checks it.
struct Domain {
  enum class Kind { kFloat, kInt, kNormal, kChoice, kGrid, kConstant };
  Kind kind = Kind::kConstant;
  double low = 0;   // kNormal: the mean
  double high = 0;  // kNormal: the standard deviation; kInt: exclusive, but inclusive when q > 1
  double q = 0;     // values are multiples of q; 0: not quantized
  bool log = false;
  std::vector<Value> values;  // kChoice, kGrid, kConstant
  std::string parent;         // When: this key exists only if the parent has one of parent_values
  std::vector<Value> parent_values;
};

Domain Uniform(double low, double high);
Domain QUniform(double low, double high, double q);
Domain LogUniform(double low, double high);
Domain QLogUniform(double low, double high, double q);
Domain RandInt(std::int64_t low, std::int64_t high);                       // the upper bound is exclusive
Domain QRandInt(std::int64_t low, std::int64_t high, std::int64_t q = 1);  // q > 1: the upper bound is inclusive
Domain LogRandInt(std::int64_t low, std::int64_t high);
Domain QLogRandInt(std::int64_t low, std::int64_t high, std::int64_t q = 1);
Domain RandN(double mean = 0, double sd = 1);
Domain QRandN(double mean, double sd, double q);
Domain Choice(std::vector<Value> values);
// Every value is tried by the variant generator. Searchers with a model treat it as a Choice.
Domain Grid(std::vector<Value> values);
Domain Constant(Value value);
// The domain applies only when the key `parent`, which must come earlier in the space, has one of the values.
Domain When(std::string parent, std::vector<Value> values, Domain domain);

class Space {
 public:
  using Parameter = std::pair<std::string, Domain>;
  Space() = default;
  Space(std::initializer_list<Parameter> parameters) : Space(std::vector<Parameter>(parameters)) {}
  explicit Space(std::vector<Parameter> parameters);  // throws SpaceError
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  std::vector<Parameter> parameters_;
};

// "lr=0.01 act=relu", in the order of the keys.
std::string Describe(const Config& config);

}  // namespace manta::tune
