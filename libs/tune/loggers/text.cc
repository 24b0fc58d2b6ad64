#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "tune/loggers/loggers.h"
#include "tune/loggers/output.h"

namespace manta::tune::loggers {
namespace {

void AppendNumber(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
  } else {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    const std::string_view digits(text, static_cast<std::size_t>(end - text));
    out += digits;
    // A float stays a float for a reader: 1 becomes 1.0.
    if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
  }
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char code[8];
          std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
          out += code;
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// Writes members in the order of their sorted keys and opens objects where the path goes down.
class Nested {
 public:
  explicit Nested(std::string& out) : out_(out) { out_ += '{'; }
  std::string& Member(std::string_view path) {
    std::size_t same = 0;  // characters of the open path that the new one shares, up to a "/"
    while (same < open_.size() && same < path.size() && open_[same] == path[same]) ++same;
    while (same > 0 && open_[same - 1] != '/') --same;
    while (open_.size() > same) {
      open_.pop_back();
      const std::size_t slash = open_.rfind('/');
      open_.resize(slash == std::string::npos ? 0 : slash + 1);
      out_ += '}';
      first_ = false;
    }
    for (;;) {
      const std::string_view rest = path.substr(open_.size());
      const std::size_t slash = rest.find('/');
      if (!first_) out_ += ", ";
      first_ = false;
      AppendQuoted(out_, rest.substr(0, slash));
      out_ += ": ";
      if (slash == std::string_view::npos) return out_;
      out_ += '{';
      first_ = true;
      open_.append(rest.substr(0, slash + 1));
    }
  }
  void End() { out_.append(static_cast<std::size_t>(std::count(open_.begin(), open_.end(), '/')) + 1, '}'); }

 private:
  std::string& out_;
  std::string open_;  // the path of the open object, "a/b/"
  bool first_ = true;
};

void AppendValue(std::string& out, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    AppendQuoted(out, *text);
  else
    AppendText(out, value);
}

}  // namespace

void AppendText(std::string& out, const Value& value) {
  if (const auto* yes = std::get_if<bool>(&value)) {
    out += *yes ? "true" : "false";
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    char text[24];
    out.append(text, std::to_chars(text, text + sizeof text, *integer).ptr);
  } else if (const auto* number = std::get_if<double>(&value)) {
    AppendNumber(out, *number);
  } else {
    out += std::get<std::string>(value);
  }
}

void AppendJson(std::string& out, const Metrics& metrics, const JsonValues* json, const Config* config) {
  Nested nested(out);
  static const JsonValues kNone;
  const JsonValues& raw = json != nullptr ? *json : kNone;
  auto other = raw.begin();
  bool config_done = config == nullptr;
  for (auto metric = metrics.begin(); metric != metrics.end() || other != raw.end();) {
    const bool take_raw = metric == metrics.end() || (other != raw.end() && other->first < metric->first);
    const std::string& key = take_raw ? other->first : metric->first;
    if (!config_done && key > "config") {
      AppendJson(nested.Member("config"), *config);
      config_done = true;
    }
    if (take_raw) {
      nested.Member(key) += other->second;
      ++other;
    } else {
      AppendValue(nested.Member(key), metric->second);
      ++metric;
    }
  }
  if (!config_done) AppendJson(nested.Member("config"), *config);
  nested.End();
}

void WriteParams(const std::string& folder, const Config& config, const JsonValues* json) {
  std::string text;
  AppendJson(text, config, json);
  std::remove((folder + "/params.json").c_str());
  Output output(folder + "/params.json");
  output.buffer() = std::move(text);
  if (!output.Flush()) throw std::runtime_error(output.why());
}

std::string FolderName(const std::string& trainable, const std::string& id, TrialNumber number, const Config& config,
                       const std::string& date, std::size_t max_length) {
  std::string name = trainable + "_" + id + "_" + std::to_string(number + 1);
  std::string tag;
  for (const auto& [key, value] : config) {
    const std::size_t slash = key.rfind('/');
    tag += (tag.empty() ? "_" : ",") + key.substr(slash == std::string::npos ? 0 : slash + 1) + "=";
    if (const auto* real = std::get_if<double>(&value)) {
      char text[32];
      std::snprintf(text, sizeof text, "%.4f", *real);
      tag += text;
    } else {
      AppendText(tag, value);
    }
  }
  for (char& c : tag) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("=,.-+_").find(c) != std::string_view::npos;
    if (!plain) c = '_';
  }
  name = (name + tag).substr(0, max_length);
  return name + "_" + date;
}

}  // namespace manta::tune::loggers
