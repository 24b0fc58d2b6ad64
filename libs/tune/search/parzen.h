// Parzen is a density over some coordinates of the unit cube: a weighted sum of kernels, one at each point, and of the
// uniform density (the prior). A kernel is a product: a normal density truncated to [0, 1] for a number, its mass in
// the cell for a discrete number, a smoothed indicator for a category.
#pragma once

#include <Eigen/Core>
#include <span>
#include <vector>

#include "tune/search/encoding.h"
#include "tune/search/random.h"

namespace manta::tune {

// One row for each point and one column for each coordinate, so that loops over points read memory in order. Single
// precision: a density needs no more, and twice as many numbers fit into a vector register.
using PointTable = Eigen::ArrayXXf;

// The widths of the kernels along one coordinate: the distance to the nearest neighbour, but at least `floor`. `order`
// sorts the points by the coordinate.
void NeighbourWidths(std::span<const float> points, std::span<const int> order, float floor, std::span<float> widths);

class Parzen {
 public:
  // The weights are those of the points; the prior has prior_weight.
  Parzen(std::vector<const Encoding::Coordinate*> dimensions, PointTable points, const PointTable& widths,
         const Eigen::ArrayXf& weights, double prior_weight);

  // Draws a point; a discrete coordinate is drawn with its kernel's probabilities.
  void Sample(Stream& stream, std::span<double> point) const;
  // The logarithm of the density at a point; a discrete coordinate contributes its mass divided by its cell's width.
  double LogDensity(std::span<const double> point) const;

 private:
  double SampleOne(Stream& stream, Eigen::Index kernel, Eigen::Index j) const;
  void MultiplyDiscrete(Eigen::Index j, double x, Eigen::ArrayXf& factor) const;

  std::vector<const Encoding::Coordinate*> dimensions_;
  std::vector<Eigen::Index> continuous_;  // the columns without cells
  std::vector<Eigen::Index> discrete_;    // the others
  PointTable points_;
  PointTable inverse_widths_;
  Eigen::ArrayXf log_factors_;      // of each kernel: its weight and its normalisation
  std::vector<double> cumulative_;  // weights; the prior comes first
  double prior_share_;
  double smoothing_;  // of categories
};

}  // namespace manta::tune
