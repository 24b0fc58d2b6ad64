// Encoding maps configurations to points of the unit cube, one coordinate for each key that is not a constant, so that
// searchers see numbers only. Equal volumes have equal probability under the space: logarithmic ranges are even in the
// logarithm, an integer or a category owns a cell, a normal distribution is even in its distribution function.
#pragma once

#include <span>
#include <vector>

#include "manta/tune/space.h"

namespace manta::tune {

std::string Describe(const Value& value);

class Encoding {
 public:
  struct Coordinate {
    std::string path;
    Domain domain;
    int cells = 0;        // how many values a discrete coordinate has; 0: continuous
    bool ordered = true;  // false: categories
    double low = 0;       // the range after the logarithm; of discrete numbers with half a step at both ends
    double high = 1;
  };

  explicit Encoding(const Space& space);

  const std::vector<Coordinate>& coordinates() const { return coordinates_; }
  std::size_t size() const { return coordinates_.size(); }
  // Keys whose condition does not hold are left out.
  Config Decode(std::span<const double> unit) const;
  // The coordinate of a key that the configuration lacks is nan. A value outside of its range throws SpaceError.
  std::vector<double> Encode(const Config& config) const;
  // One coordinate's value at u in [0, 1].
  static Value At(const Coordinate& coordinate, double u);
  // The interval around u whose points all have the value at u, of a discrete coordinate.
  static std::pair<double, double> Cell(const Coordinate& coordinate, double u);

 private:
  static double Unit(const Coordinate& coordinate, const Value& value);

  Space space_;
  std::vector<Coordinate> coordinates_;
};

}  // namespace manta::tune
