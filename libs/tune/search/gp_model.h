// GpModel is a Gaussian process over points of the unit cube with a Matern-5/2 kernel and one length scale for each
// coordinate. Values should be standardised. A category is a corner of a simplex, so that all categories are equally
// far apart; a key that does not exist lies beside the range of the key.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <vector>

#include "tune/search/encoding.h"

namespace manta::tune {

// The coordinates as features, whose squared distances add up. Several features may belong to one coordinate.
class GpFeatures {
 public:
  explicit GpFeatures(const Encoding& encoding);
  Eigen::Index size() const { return static_cast<Eigen::Index>(owner_.size()); }
  Eigen::Index coordinates() const { return static_cast<Eigen::Index>(first_.size()); }
  Eigen::Index owner(Eigen::Index feature) const { return owner_[feature]; }
  Eigen::Index first(Eigen::Index coordinate) const { return first_[coordinate]; }
  // nan: the key does not exist.
  Eigen::VectorXd Of(const std::vector<double>& unit) const;

 private:
  const Encoding* encoding_;
  std::vector<Eigen::Index> owner_;
  std::vector<Eigen::Index> first_;  // of each coordinate: its first feature
};

struct GpParameters {
  Eigen::VectorXd log_lengths;  // of each coordinate
  double log_variance = 0;
  double log_noise = -9;  // variance
  Eigen::VectorXd Packed() const;
  static GpParameters Unpacked(const Eigen::VectorXd& packed);
};

// The parameters with the highest posterior density, from several starts. Points are rows.
GpParameters FitGp(const GpFeatures& features, const Eigen::MatrixXd& points, const Eigen::VectorXd& values);

// The negative logarithm of the posterior density of packed parameters (without constants), and its gradient.
class GpPosterior {
 public:
  GpPosterior(const GpFeatures& features, const Eigen::MatrixXd& points, Eigen::VectorXd values);
  double operator()(const Eigen::VectorXd& packed, Eigen::VectorXd& gradient) const;
  Eigen::VectorXd Low() const;
  Eigen::VectorXd High() const;

 private:
  Eigen::Index coordinates_;
  Eigen::MatrixXd squares_;  // for each pair of points (rows) and coordinate: the squared distance
  Eigen::VectorXd values_;
};

class GpModel {
 public:
  // The features must outlive the model.
  GpModel(const GpFeatures& features, const Eigen::MatrixXd& points, const Eigen::VectorXd& values,
          const GpParameters& parameters);

  struct Prediction {
    double mean;
    double deviation;
    // Of mean and deviation with respect to the features.
    Eigen::VectorXd mean_gradient;
    Eigen::VectorXd deviation_gradient;
  };
  Prediction Predict(const Eigen::VectorXd& point) const;
  // Means and deviations of many points (rows), without gradients.
  void PredictAll(const Eigen::MatrixXd& points, Eigen::VectorXd& means, Eigen::VectorXd& deviations) const;
  // The least mean at an observed point.
  double Best() const { return best_; }

 private:
  Eigen::MatrixXd scaled_;           // points divided by the length scales; columns are points
  Eigen::VectorXd inverse_lengths_;  // of each feature
  double variance_;
  Eigen::LLT<Eigen::MatrixXd> factor_;
  Eigen::VectorXd weights_;  // inverse covariance times values
  double best_;
};

}  // namespace manta::tune
