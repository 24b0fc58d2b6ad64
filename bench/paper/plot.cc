#include "plot.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace paper {
namespace {

constexpr double kWidth = 760, kHeight = 460;
constexpr double kLeft = 80, kRight = 20, kTop = 64, kBottom = 60;
constexpr const char* kColours[] = {"#1b6ca8", "#d1495b", "#2e933c", "#8e5ea2", "#b8860b", "#3d5a6c"};

std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string Format(const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// Where values of one axis go, and which of them get a tick.
class Scale {
 public:
  Scale(const Axis& axis, double low, double high, double from, double to)
      : logarithmic_(axis.logarithmic), from_(from), to_(to) {
    if (logarithmic_) {
      low_ = std::floor(std::log10(low) + 1e-9);
      high_ = std::max(std::ceil(std::log10(high) - 1e-9), low_ + 1);
      for (double power = low_; power <= high_ + 0.5; ++power) ticks_.push_back(std::pow(10, power));
      return;
    }
    low_ = std::min(low, 0.0);
    const double rough = std::max(high - low_, 1e-12) / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (step < rough) step = factor * power;
    }
    high_ = low_;
    for (double at = low_; at < high + step * 0.999; at += step) {
      ticks_.push_back(at);
      high_ = at;
    }
  }
  [[nodiscard]] double At(double value) const {
    const double position = logarithmic_ ? std::log10(value) : value;
    return from_ + (position - low_) / (high_ - low_) * (to_ - from_);
  }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  bool logarithmic_;
  double from_, to_;
  double low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

std::string Text(double x, double y, const char* anchor, int size, const std::string& text, const char* more = "") {
  return Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" %s>", x, y, anchor, size, more) +
         Escaped(text) + "</text>\n";
}

std::string Draw(const Series& series, const char* colour, const Scale& x, const Scale& y) {
  const char* dashes = series.mark == Mark::kMeasured    ? ""
                       : series.mark == Mark::kSimulated ? "stroke-dasharray=\"7 4\""
                                                         : "stroke-dasharray=\"2 4\"";
  std::string out = Format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" %s points=\"", colour, dashes);
  for (const auto& [px, py] : series.points) out += Format("%.1f,%.1f ", x.At(px), y.At(py));
  out += "\"/>\n";
  for (const auto& [px, py] : series.points) {
    out += Format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" stroke=\"%s\" fill=\"%s\"/>\n", x.At(px), y.At(py), colour,
                  series.mark == Mark::kMeasured ? colour : "white");
  }
  return out;
}

}  // namespace

std::string TickText(double value, const std::string& unit) {
  static constexpr std::pair<double, const char*> kSteps[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [size, letter] : kSteps) {
    if (std::fabs(value) >= size) return Format("%.3g %s%s", value / size, letter, unit.c_str());
  }
  return Format("%.3g", value) + (unit.empty() ? "" : " " + unit);
}

std::string Plot::Svg() const {
  double low[2] = {1e300, 1e300};
  double high[2] = {-1e300, -1e300};
  for (const Series& one : series) {
    for (const auto& [px, py] : one.points) {
      low[0] = std::min(low[0], px), high[0] = std::max(high[0], px);
      low[1] = std::min(low[1], py), high[1] = std::max(high[1], py);
    }
  }
  if (low[0] > high[0]) low[0] = low[1] = 1, high[0] = high[1] = 10;
  const Scale across(x, low[0], high[0], kLeft, kWidth - kRight);
  const Scale up(y, low[1], high[1], kHeight - kBottom, kTop);
  std::string out = Format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  out += Text(kLeft, 22, "start", 16, title) + Text(kLeft, 40, "start", 10, note, "fill=\"#666\"");
  for (const double tick : across.ticks()) {
    const double at = across.At(tick);
    out += Format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", at, at, kTop,
                  kHeight - kBottom);
    out += Text(at, kHeight - kBottom + 18, "middle", 12, TickText(tick, x.unit));
  }
  for (const double tick : up.ticks()) {
    const double at = up.At(tick);
    out += Format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", kLeft,
                  kWidth - kRight, at, at);
    out += Text(kLeft - 8, at + 4, "end", 12, TickText(tick, y.unit));
  }
  out += Text((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", 13, x.label);
  out += Text(0, 0, "middle", 13, y.label,
              Format("transform=\"translate(18 %.1f) rotate(-90)\"", (kTop + kHeight - kBottom) / 2).c_str());
  double row = kTop + 16;
  std::size_t used = 0;
  for (const Series& one : series) {
    const char* colour = one.mark == Mark::kPaper ? "#888888" : kColours[used++ % std::size(kColours)];
    if (!one.points.empty()) out += Draw(one, colour, across, up);
    out += Format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" stroke=\"%s\" fill=\"%s\"/>\n", kLeft + 14, row - 4, colour,
                  one.mark == Mark::kMeasured ? colour : "white");
    out += Text(kLeft + 24, row, "start", 12, one.name);
    row += 16;
  }
  return out + "</svg>\n";
}

}  // namespace paper
