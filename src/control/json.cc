#include "control/json.h"

#include <algorithm>
#include <charconv>

namespace manta::control {
namespace {

const Json kNull;

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  bool Value(int depth, Json* out) {
    if (depth > Json::kMaxDepth) return false;
    Space();
    if (left_.empty()) return false;
    switch (left_.front()) {
      case '{':
        return Object(depth, out);
      case '[':
        return Array(depth, out);
      case '"':
        out->kind = Json::Kind::kString;
        return String(&out->text);
      case 't':
      case 'f':
        out->kind = Json::Kind::kBool;
        out->truth = left_.front() == 't';
        return Word(out->truth ? "true" : "false");
      case 'n':
        return Word("null");
      default:
        return Number(out);
    }
  }
  bool AtEnd() {
    Space();
    return left_.empty();
  }

 private:
  void Space() {
    while (!left_.empty() && std::string_view(" \t\r\n").find(left_.front()) != std::string_view::npos) {
      left_.remove_prefix(1);
    }
  }
  bool Take(char byte) {
    Space();
    if (left_.empty() || left_.front() != byte) return false;
    left_.remove_prefix(1);
    return true;
  }
  bool Word(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  bool Number(Json* out) {
    const std::size_t size = std::min(left_.find_first_not_of("+-.0123456789eE"), left_.size());
    if (size == 0) return false;
    out->kind = Json::Kind::kNumber;
    out->text = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }
  bool Object(int depth, Json* out) {
    out->kind = Json::Kind::kObject;
    left_.remove_prefix(1);
    if (Take('}')) return true;
    do {
      Space();
      if (!String(&out->names.emplace_back()) || !Take(':') || !Value(depth + 1, &out->items.emplace_back()))
        return false;
    } while (Take(','));
    return Take('}');
  }
  bool Array(int depth, Json* out) {
    out->kind = Json::Kind::kArray;
    left_.remove_prefix(1);
    if (Take(']')) return true;
    do {
      if (!Value(depth + 1, &out->items.emplace_back())) return false;
    } while (Take(','));
    return Take(']');
  }
  bool String(std::string* out) {
    if (left_.empty() || left_.front() != '"') return false;
    left_.remove_prefix(1);
    while (!left_.empty()) {
      const char byte = left_.front();
      left_.remove_prefix(1);
      if (byte == '"') return true;
      if (byte != '\\') {
        out->push_back(byte);
        continue;
      }
      if (left_.empty()) return false;
      const char escaped = left_.front();
      left_.remove_prefix(1);
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
      if (const std::size_t at = kNames.find(escaped); at != std::string_view::npos) {
        out->push_back(kBytes[at]);
      } else if (escaped != 'u' || !Escaped(out)) {
        return false;
      }
    }
    return false;
  }
  // \uXXXX. What we read is ASCII; the rest only has to be something.
  bool Escaped(std::string* out) {
    unsigned code = 0;
    const std::string_view digits = left_.substr(0, 4);
    if (digits.size() < 4 || std::from_chars(digits.begin(), digits.end(), code, 16).ptr != digits.end()) return false;
    left_.remove_prefix(4);
    out->push_back(code < 0x80 ? static_cast<char>(code) : '?');
    return true;
  }

  std::string_view left_;
};

}  // namespace

Result<Json> Json::Parse(std::string_view text) {
  Reader reader(text);
  Json value;
  if (!reader.Value(0, &value) || !reader.AtEnd()) {
    return Status(Code::kCorrupt, Cat("this is no JSON: ", text.substr(0, 80)));
  }
  return value;
}

const Json& Json::operator[](std::string_view name) const {
  const auto it = std::find(names.begin(), names.end(), name);
  return it != names.end() ? items[static_cast<std::size_t>(it - names.begin())] : kNull;
}

const Json& Json::operator[](std::size_t index) const { return index < items.size() ? items[index] : kNull; }

std::int64_t Json::Number() const {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace manta::control
