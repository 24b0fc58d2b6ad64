// Reads a program's command line. What is wrong with it is told in one line as every other failure is: which command,
// which word, and what was perhaps meant. The exit status is then 2.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace manta::cli {

// How many letters to add, leave out or change; two that changed places count as one.
inline std::size_t Distance(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  std::vector<std::size_t> above = row;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    const std::vector<std::size_t> before = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

inline std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  std::size_t least = word.size() > 5 ? 3 : 2;  // more than a third of it is another word
  for (const std::string& one : known) {
    const bool begun = word.size() > 3 && one.starts_with(word);
    const std::size_t distance = begun ? 0 : Distance(word, one);
    if (distance >= least) continue;
    least = distance;
    best = &one;
  }
  return best != nullptr ? " (did you mean " + *best + "?)" : std::string();
}

// What is wrong, for the user.
inline std::string WhatIsWrong(CLI::App& app, const std::string& program, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string name = chosen.empty() ? program : program + " " + command.get_name();
  const std::string help = "; `" + name + " --help` shows what there is";
  const std::vector<std::string> rest = app.remaining(true);
  const auto is_option = [](const std::string& word) { return word.starts_with("-"); };
  const auto option = std::find_if(rest.begin(), rest.end(), is_option);
  const std::vector<CLI::App*> commands = app.get_subcommands([](CLI::App*) { return true; });
  std::vector<std::string> known;
  if (chosen.empty() && !commands.empty() && (rest.empty() || !is_option(rest.front()))) {
    if (rest.empty()) return name + ": say what to do" + help;
    for (const CLI::App* one : commands) known.push_back(one->get_name());
    return name + ": there is no command " + rest.front() + DidYouMean(rest.front(), known) + help;
  }
  if (option != rest.end()) {
    for (const CLI::App* one : {&command, static_cast<const CLI::App*>(&app)}) {
      for (const CLI::Option* each : one->get_options()) {
        for (const std::string& spelling : each->get_lnames()) known.push_back("--" + spelling);
      }
    }
    return name + ": there is no option " + *option + DidYouMean(option->substr(0, option->find('=')), known) + help;
  }
  if (!rest.empty()) return name + ": one word too many: " + rest.front() + help;
  return name + ": " + error.what() + help;
}

// Nothing: all is well. Else the exit status, and it was told.
inline std::optional<int> Parse(CLI::App& app, const std::string& program, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "%s\n", WhatIsWrong(app, program, error).c_str());
    return 2;
  }
}

}  // namespace manta::cli
