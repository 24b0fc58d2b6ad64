// Reads traces of record_ray_traces.py from standard input and compares them with Manta's schedulers.
#include <cstdio>
#include <iostream>

#include "tune/search/testing/traces.h"

int main() {
  int count = 0;
  int wrong = 0;
  for (std::string line; std::getline(std::cin, line); ++count) {
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
