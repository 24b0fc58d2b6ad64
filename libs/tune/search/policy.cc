#include "tune/search/policy.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "manta/tune/population.h"

namespace manta::tune {
namespace {

void Write(std::string& out, const std::string& text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
      out += buffer;
    } else {
      out += c;
    }
  }
  out += '"';
}

void Write(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "NaN";
  } else if (std::isinf(number)) {
    out += number > 0 ? "Infinity" : "-Infinity";
  } else {
    char buffer[32];
    auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
    std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
    out += text;
    if (text.find_first_of(".e") == std::string_view::npos) out += ".0";  // it stays a float when it is read
  }
}

void Write(std::string& out, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) out += *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) out += std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) Write(out, *real);
  if (const auto* text = std::get_if<std::string>(&value)) Write(out, *text);
}

// The entries from `at` on whose paths begin with the prefix; they are adjacent, because the map is sorted.
void WriteObject(std::string& out, Config::const_iterator& at, Config::const_iterator end, const std::string& prefix) {
  out += "{";
  bool first = true;
  while (at != end && at->first.starts_with(prefix)) {
    if (!first) out += ", ";
    first = false;
    auto slash = at->first.find('/', prefix.size());
    Write(out, at->first.substr(prefix.size(), slash == std::string::npos ? slash : slash - prefix.size()));
    out += ": ";
    if (slash == std::string::npos) {
      Write(out, at->second);
      ++at;
    } else {
      WriteObject(out, at, end, at->first.substr(0, slash + 1));
    }
  }
  out += "}";
}

// Reads the subset of JSON that policy files have.
class Parser {
 public:
  Parser(std::string_view line, std::size_t number) : rest_(line), number_(number) {}

  PolicyRow Row() {
    PolicyRow row;
    Expect('[');
    row.trial_tag = Tag();
    Expect(',');
    row.donor_tag = Tag();
    Expect(',');
    row.trial_iteration = Iteration();
    Expect(',');
    row.donor_iteration = Iteration();
    Expect(',');
    Object(row.donor_config, "", 0);
    Expect(',');
    Object(row.config, "", 0);
    Expect(']');
    Skip();
    if (!rest_.empty()) Fail("there is text after the list");
    return row;
  }

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw std::invalid_argument("line " + std::to_string(number_) + " of the policy is not what PBT writes: " +
                                problem + ". Give the content of a pbt_policy file.");
  }
  void Skip() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) rest_.remove_prefix(1);
  }
  bool Take(char c) {
    Skip();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail(std::string("a ") + c + " is missing");
  }

  std::string Text() {
    Expect('"');
    std::string text;
    while (!rest_.empty() && rest_[0] != '"') {
      char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '\\') {
        Escape(text);
      } else {
        text += c;
      }
    }
    Expect('"');
    return text;
  }

  void Escape(std::string& text) {
    if (rest_.empty()) Fail("an escape is incomplete");
    char c = rest_[0];
    rest_.remove_prefix(1);
    constexpr std::string_view kNames = "bfnrt";
    if (auto at = kNames.find(c); at != std::string_view::npos) {
      text += "\b\f\n\r\t"[at];
    } else if (c != 'u') {
      text += c;
    } else {
      unsigned code = 0;
      std::string digits(rest_.substr(0, 4));
      const char* end = digits.data() + digits.size();
      if (digits.size() < 4 || std::from_chars(digits.data(), end, code, 16).ptr != end) {
        Fail("an escape is incomplete");
      }
      rest_.remove_prefix(4);
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else {
        if (code >= 0x800) text += static_cast<char>(0xE0 | (code >> 12));
        text += static_cast<char>(code >= 0x800 ? 0x80 | ((code >> 6) & 0x3F) : 0xC0 | (code >> 6));
        text += static_cast<char>(0x80 | (code & 0x3F));
      }
    }
  }

  Value Scalar() {
    Skip();
    if (rest_.starts_with('"')) return Text();
    auto end = rest_.find_first_of(",]} \t\r");
    std::string word(rest_.substr(0, end));
    rest_.remove_prefix(word.size());
    if (word == "true") return true;
    if (word == "false") return false;
    if (word == "NaN") return std::nan("");
    std::int64_t whole = 0;
    const char* last = word.data() + word.size();
    if (!word.empty() && std::from_chars(word.data(), last, whole).ptr == last) return whole;
    double real = 0;
    if (!word.empty() && std::from_chars(word.data(), last, real).ptr == last) return real;
    Fail("a value is neither a number nor a word nor true or false");
  }

  std::string Tag() {
    Value value = Scalar();
    const auto* text = std::get_if<std::string>(&value);
    return text != nullptr ? *text : Describe({{"tag", value}});
  }

  std::int64_t Iteration() {
    Value value = Scalar();
    const auto* whole = std::get_if<std::int64_t>(&value);
    if (whole == nullptr) Fail("an iteration is no whole number");
    return *whole;
  }

  void Object(Config& config, const std::string& prefix, int depth) {
    if (depth > 32) Fail("objects are nested deeper than 32");
    Expect('{');
    if (Take('}')) return;
    do {
      std::string path = prefix + Text();
      Expect(':');
      Skip();
      if (rest_.starts_with('{')) {
        Object(config, path + "/", depth + 1);
      } else {
        config[path] = Scalar();
      }
    } while (Take(','));
    Expect('}');
  }

  std::string_view rest_;
  std::size_t number_;
};

}  // namespace

std::string PolicyJson(const PolicyLine& line, const std::string& trial_tag, const std::string& donor_tag) {
  std::string out = "[";
  Write(out, trial_tag);
  out += ", ";
  Write(out, donor_tag);
  out += ", " + std::to_string(line.trial_iteration) + ", " + std::to_string(line.donor_iteration);
  for (const Config* config : {&line.donor_config, &line.config}) {
    out += ", ";
    auto at = config->begin();
    WriteObject(out, at, config->end(), "");
  }
  return out + "]";
}

std::vector<PolicyRow> ParsePolicy(std::string_view text) {
  std::vector<PolicyRow> rows;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) rows.push_back(Parser(line, number).Row());
  }
  return rows;
}

}  // namespace manta::tune
