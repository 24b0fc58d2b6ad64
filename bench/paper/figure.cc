#include "figure.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "harness.h"

namespace paper {
namespace {

std::string FirstLine(const std::string& file, const std::string& start) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(start)) continue;
    const std::size_t at = line.find_first_not_of(": \t", start.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "?";
}

std::string Commit() {
  std::string text;
  if (std::FILE* git = ::popen("git -C '" MANTA_SOURCE_DIR "' describe --always --dirty 2>/dev/null", "r")) {
    char line[128];
    if (std::fgets(line, sizeof line, git) != nullptr) text = line;
    ::pclose(git);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "unknown" : text;
}

std::string About() {
  utsname system{};
  ::uname(&system);
  char date[40];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  const std::string load = FirstLine("/proc/loadavg", "");
  const double memory = std::atof(FirstLine("/proc/meminfo", "MemTotal").c_str()) / (1U << 20);
  std::ostringstream out;
  out << FirstLine("/proc/cpuinfo", "model name") << ", " << std::thread::hardware_concurrency() << " cores, "
      << std::lround(memory) << " GiB, Linux " << system.release << "; " << date << "; commit " << Commit()
      << "; load at the start " << load.substr(0, load.find(' '));
  return out.str();
}

// Of characters, in UTF-8.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Figure::Figure(int argc, char** argv, std::string name, const std::string& title) : name_(std::move(name)) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      quick_ = true;
    } else if (word == "--out" && i + 1 < argc) {
      folder_ = argv[++i];
    } else {
      bench::Fail("usage: " + name_ + " [--out FOLDER] [--quick]");
    }
  }
  std::filesystem::create_directories(folder_);
  about_ = About();
  Say("# " + title + "\n\n" + about_ + (quick_ ? "\n\nTiny sizes: a test, not a measurement." : "") + "\n");
}

Figure::~Figure() { std::ofstream(folder_ + "/" + name_ + ".md") << text_; }

void Figure::Say(const std::string& text) {
  text_ += text + "\n";
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Figure::Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = i < rows[r].size() ? rows[r][i] : "";
      out += "| " + cell + std::string(widths[i] - Width(cell) + 1, ' ');
    }
    out += "|\n";
    if (r > 0) continue;
    for (const std::size_t width : widths) out += "|" + std::string(width + 2, '-');
    out += "|\n";
  }
  Say(out);
}

void Figure::Draw(Plot plot, const std::string& suffix) {
  plot.note = about_;
  const std::string file = folder_ + "/" + name_ + (suffix.empty() ? "" : "_" + suffix) + ".svg";
  std::ofstream out(file);
  out << plot.Svg();
  if (!out.flush()) bench::Fail("cannot write " + file);
  Say("plot: " + std::filesystem::path(file).filename().string());
}

std::string Number(double value) {
  char text[40];
  const double size = std::fabs(value);
  if (size >= 1e6) return TickText(value, "");
  std::snprintf(text, sizeof text,
                size >= 100 || value == std::round(value) ? "%.0f"
                : size >= 1                               ? "%.2f"
                                                          : "%.3g",
                value);
  std::string out = text;
  if (out.find('.') == std::string::npos && out.find('e') == std::string::npos) {
    for (std::size_t at = out.size(); at > 3 + (value < 0 ? 1U : 0U);) out.insert(at -= 3, ",");
  }
  return out;
}

int Main(int argc, char** argv, void (*measure)(int argc, char** argv)) {
  try {
    measure(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace paper
