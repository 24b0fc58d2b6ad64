// TpeModel proposes points of the unit cube from observed ones: those of the good observations are made likely, those
// of the others unlikely. Keys with the same condition form a group, which has a joint model of the observations in
// which the group exists; a group is sampled after the keys that its condition names.
#pragma once

#include <vector>

#include "tune/search/encoding.h"
#include "tune/search/pareto.h"
#include "tune/search/random.h"

namespace manta::tune {

class TpeModel {
 public:
  struct Settings {
    int candidates = 24;
    double prior_weight = 1;
    double good_share = 0.1;
    int max_good = 25;
  };

  // The encoding must outlive the model.
  TpeModel(const Encoding& encoding, Settings settings);

  // Adds a point without a value; nan: the key does not exist. Returns its number.
  int Add(const std::vector<double>& unit);
  // Gives the point a value; a point with one objective is ranked in logarithmic time.
  void Rank(int point, const Objectives& values);
  // Hides a point without a value from the model, or shows it as a bad one.
  void Hide(int point, bool hidden) { hidden_[point] = hidden; }

  int ranked() const { return static_cast<int>(ranked_.size()); }
  std::vector<double> Propose(Stream& stream) const;

 private:
  struct Group {
    std::vector<std::size_t> columns;
    std::vector<const Encoding::Coordinate*> coordinates;
    bool conditional = false;
  };

  bool Exists(const Group& group, int point) const;
  std::vector<int> Best() const;
  std::vector<char> Good(const Group& group) const;
  class Parzen Density(const Group& group, const std::vector<char>& good, bool want_good) const;
  void ProposeGroup(const Group& group, Stream& stream, std::vector<double>& unit) const;

  const Encoding& encoding_;
  Settings settings_;
  std::vector<Group> groups_;
  std::vector<std::vector<float>> columns_;  // for each coordinate: the points
  std::vector<std::vector<int>> sorted_;     // for each coordinate: the points by its value
  std::vector<char> hidden_;
  std::vector<Objectives> values_;                  // empty: none
  std::vector<std::pair<Objectives, int>> ranked_;  // with one objective the best first
};

}  // namespace manta::tune
