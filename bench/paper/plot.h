// Plot draws one figure as SVG: lines or bars over a linear or logarithmic axis each. Enough for the paper's figures,
// and nothing to install. Plain values; Svg() has no state and touches no file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace paper {

enum class Mark { kMeasured, kSimulated, kPaper };  // filled, hollow and dashed, grey and dotted

struct Series {
  std::string name;
  Mark mark = Mark::kMeasured;
  std::vector<std::pair<double, double>> points;  // those of a logarithmic axis are above 0
};

struct Axis {
  std::string label;
  bool logarithmic = false;
  std::string unit;  // "B": ticks are written as 100 KB, 1 MB, …
};

struct Plot {
  std::string title;
  std::string note;  // in small letters below the title: machine, commit
  Axis x;
  Axis y;
  std::vector<Series> series;

  [[nodiscard]] std::string Svg() const;
};

// 1234567 as "1.2 M", 0.05 as "0.05"; with the unit "B" decimal bytes.
[[nodiscard]] std::string TickText(double value, const std::string& unit);

}  // namespace paper
