// CmaModel is the evolution of one normal distribution by covariance matrix adaptation (Hansen, "The CMA Evolution
// Strategy: A Tutorial", 2016) in the unit cube: the mean moves to the better points, the covariance matrix learns from
// their steps (rank-mu) and from the path of the mean (rank-one), the step size from the length of that path. In many
// dimensions only the diagonal is learned (sep-CMA-ES, Ros and Hansen, 2008).
//
// Discrete coordinates have a margin (Hamano et al., 2022): the distribution keeps at least the probability 1/(d
// lambda) outside of the mean's cell, so that the search cannot freeze in one cell.
#pragma once

#include <Eigen/Core>
#include <vector>

#include "tune/search/encoding.h"
#include "tune/search/random.h"

namespace manta::tune {

class CmaModel {
 public:
  struct Settings {
    int population = 0;      // lambda; 0: 4 + floor(3 log d)
    double sigma = 1.0 / 6;  // the first step size; the cube has edges of length 1
    bool diagonal = false;
  };
  struct Point {
    Eigen::VectorXd x;
    double value;  // infinity: failed
  };

  // The encoding must outlive the model.
  CmaModel(const Encoding& encoding, Eigen::VectorXd mean, Settings settings);

  int population() const { return population_; }
  // Draws a point inside of the cube; points outside are drawn again, and the last of many tries is clamped.
  Eigen::VectorXd Sample(Stream& stream) const;
  // Learns from a population. Points that the distribution would hardly have produced are moved towards the mean.
  void Update(std::vector<Point> points);
  // The distribution has become so small or so distorted that it cannot find anything new.
  bool Converged() const;

  const Eigen::VectorXd& mean() const { return mean_; }
  const Eigen::MatrixXd& covariance() const { return covariance_; }
  double sigma() const { return sigma_; }

 private:
  void Decompose();
  void KeepMargins();

  const Encoding* encoding_;
  int population_;
  bool diagonal_;
  Eigen::VectorXd weights_;  // of all points of a population, best first; the worse half has negative ones
  double mu_eff_, c_sigma_, d_sigma_, c_c_, c_1_, c_mu_, expected_norm_;

  Eigen::VectorXd mean_;
  double sigma_;
  double first_sigma_;
  Eigen::MatrixXd covariance_;  // of diagonal models one column: the diagonal
  Eigen::MatrixXd basis_;       // eigenvectors
  Eigen::VectorXd lengths_;     // roots of the eigenvalues
  Eigen::VectorXd stretch_;     // the margins' factors, one for each coordinate
  Eigen::VectorXd path_sigma_;
  Eigen::VectorXd path_c_;
  int generation_ = 0;
  std::vector<double> recent_bests_;
};

}  // namespace manta::tune
