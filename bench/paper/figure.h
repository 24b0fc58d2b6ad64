// Figure is what the paper's programs have in common: it reads --out FOLDER and --quick (tiny sizes, for the tests),
// says on what machine, when and at which commit, prints tables, and writes both as text and as plots into the folder.
#pragma once

#include <string>
#include <vector>

#include "plot.h"

namespace paper {

class Figure {
 public:
  // `name` is that of the files: "fig8a".
  Figure(int argc, char** argv, std::string name, const std::string& title);
  ~Figure();  // writes the text
  Figure(const Figure&) = delete;
  Figure& operator=(const Figure&) = delete;

  [[nodiscard]] bool quick() const { return quick_; }
  template <typename T>
  [[nodiscard]] T Pick(T full, T quick) const {
    return quick_ ? quick : full;
  }

  void Say(const std::string& text);
  // The first row is the names of the columns; a Markdown table.
  void Table(const std::vector<std::vector<std::string>>& rows);
  // FOLDER/name.svg, or name_suffix.svg.
  void Draw(Plot plot, const std::string& suffix = "");

 private:
  std::string name_;
  std::string folder_ = ".";
  std::string about_;
  std::string text_;
  bool quick_ = false;
};

// What every figure's main does: measures, and says what went wrong.
int Main(int argc, char** argv, void (*measure)(int argc, char** argv));

// Three digits: "1,230", "12.3", "0.0123".
[[nodiscard]] std::string Number(double value);

}  // namespace paper
