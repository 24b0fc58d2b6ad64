// progress.csv and result.json.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tune/loggers/loggers.h"
#include "tune/loggers/output.h"

namespace manta::tune::loggers {
namespace {

void AppendField(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

// The fields of the first line of a file that exists; quotes inside keys are not expected.
std::vector<std::string> HeaderOf(const std::string& path) {
  std::vector<std::string> keys;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return keys;
  std::string key;
  bool quoted = false;
  int c = 0;
  while ((c = std::fgetc(file)) != EOF && (quoted || (c != '\n' && c != '\r'))) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      keys.push_back(std::move(key));
      key.clear();
    } else {
      key += static_cast<char>(c);
    }
  }
  if (!key.empty()) keys.push_back(std::move(key));
  std::fclose(file);
  return keys;
}

class CsvLogger : public Logger {
 public:
  explicit CsvLogger(const std::string& folder) : output_(folder + "/progress.csv"), keys_(HeaderOf(output_.path())) {}

  void Write(const Row& row) override {
    std::string& out = output_.buffer();
    if (keys_.empty()) Header(row, out);
    bool first = true;
    for (const std::string& key : keys_) {
      if (!first) out += ',';
      first = false;
      Append(row, key, out);
    }
    out += "\r\n";
    if (output_.full()) (void)output_.Flush();
  }
  void End(double) override {}
  bool Flush() override { return output_.Flush(); }
  std::string why() const override { return output_.why(); }

 private:
  void Header(const Row& row, std::string& out) {
    for (const auto& [key, value] : *row.metrics) keys_.push_back(key);
    if (row.json != nullptr) {
      for (const auto& [key, value] : *row.json) keys_.push_back(key);
    }
    if (row.config != nullptr) {
      for (const auto& [key, value] : *row.config) keys_.push_back("config/" + key);
    }
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (i > 0) out += ',';
      AppendField(out, keys_[i]);
    }
    out += "\r\n";
  }
  void Append(const Row& row, const std::string& key, std::string& out) {
    if (auto found = row.metrics->find(key); found != row.metrics->end()) {
      text_.clear();
      AppendText(text_, found->second);
      AppendField(out, text_);
      return;
    }
    constexpr std::string_view kConfig = "config/";
    if (row.config != nullptr && key.starts_with(kConfig)) {
      auto found = row.config->find(key.substr(kConfig.size()));
      if (found == row.config->end()) return;
      text_.clear();
      AppendText(text_, found->second);
      AppendField(out, text_);
      return;
    }
    if (row.json == nullptr) return;
    if (auto found = row.json->find(key); found != row.json->end()) AppendField(out, found->second);
  }

  Output output_;
  std::vector<std::string> keys_;
  std::string text_;
};

class JsonLogger : public Logger {
 public:
  explicit JsonLogger(const std::string& folder) : output_(folder + "/result.json") {}
  void Write(const Row& row) override {
    AppendJson(output_.buffer(), *row.metrics, row.json, row.config);
    output_.buffer() += '\n';
    if (output_.full()) (void)output_.Flush();
  }
  void End(double) override {}
  bool Flush() override { return output_.Flush(); }
  std::string why() const override { return output_.why(); }

 private:
  Output output_;
};

}  // namespace

std::unique_ptr<Logger> MakeCsvLogger(const std::string& folder) { return std::make_unique<CsvLogger>(folder); }
std::unique_ptr<Logger> MakeJsonLogger(const std::string& folder) { return std::make_unique<JsonLogger>(folder); }

}  // namespace manta::tune::loggers
