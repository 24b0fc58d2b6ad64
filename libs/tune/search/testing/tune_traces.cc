// Reads traces of record_ray_traces.py from standard input and compares them with Manta's schedulers.
#include <cstdio>
#include <string>

#include "tune/search/traces.h"

namespace {

bool ReadLine(std::string& line) {
  line.clear();
  int c = std::getchar();
  for (; c != EOF && c != '\n'; c = std::getchar()) line += static_cast<char>(c);
  return c != EOF || !line.empty();
}

}  // namespace

int main() {
  int count = 0;
  int wrong = 0;
  for (std::string line; ReadLine(line); ++count) {
    std::string problem;
    try {
      problem = manta::tune::TraceChecker::Check(line, 7 * (count % 3));
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (problem.empty()) continue;
    if (++wrong <= 5) std::printf("trace %d differs at %s\n  %s\n", count, problem.c_str(), line.c_str());
  }
  std::printf("%d traces, %d differ\n", count, wrong);
  return wrong == 0 && count > 0 ? 0 : 1;
}
