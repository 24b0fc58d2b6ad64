// Minimises a function inside of a box by projected L-BFGS: directions from the last steps and gradients (Liu and
// Nocedal, 1989), without the coordinates that a bound holds, and a line search along the projection onto the box.
#pragma once

#include <Eigen/Core>
#include <functional>

namespace manta::tune {

struct Minimum {
  Eigen::VectorXd x;
  double value;
};

// The function returns its value at x and sets the gradient; a value that is not finite makes the step shorter. At most
// `evaluations` calls.
using Differentiable = std::function<double(const Eigen::VectorXd& x, Eigen::VectorXd& gradient)>;
Minimum MinimizeInBox(const Differentiable& function, Eigen::VectorXd x, const Eigen::VectorXd& low,
                      const Eigen::VectorXd& high, int evaluations);

}  // namespace manta::tune
