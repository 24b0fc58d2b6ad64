// TimeGp is a Gaussian process over (time, x...), in which old observations count less: the kernel is a squared
// exponential in x times (1 - epsilon)^(|difference of times| / 2) (Bogunovic et al., 2016). The points should be
// scaled to the unit cube and the values to a mean of 0 and a deviation of 1.
#pragma once

#include <span>
#include <vector>

namespace manta::tune {

class TimeGp {
 public:
  struct Kernel {
    double variance = 1;
    double length = 1;  // squared distances are divided by it
    double epsilon = 0.1;
  };
  struct Prediction {
    double mean = 0;
    double variance = 0;
  };

  // Points have equal sizes; the first coordinate is the time. If the points are so close that the matrix is singular,
  // the noise is raised until it is not.
  TimeGp(std::vector<std::vector<double>> points, std::vector<double> values, const Kernel& kernel, double noise);
  // Chooses the kernel that maximises the likelihood.
  static TimeGp Fit(const std::vector<std::vector<double>>& points, const std::vector<double>& values, double noise);

  Prediction Predict(std::span<const double> point) const;
  double log_likelihood() const { return log_likelihood_; }
  const Kernel& kernel() const { return kernel_; }
  std::size_t size() const { return values_.size(); }

 private:
  double Covariance(std::span<const double> a, std::span<const double> b) const;

  std::vector<std::vector<double>> points_;
  std::vector<double> values_;
  Kernel kernel_;
  std::vector<double> factor_;   // the Cholesky factor, column by column
  std::vector<double> weights_;  // inverse covariance times values
  double log_likelihood_ = 0;
};

}  // namespace manta::tune
