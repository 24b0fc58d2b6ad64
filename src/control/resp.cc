#include "control/resp.h"

#include <charconv>

namespace manta::control {
namespace {

template <typename Words>
void Append(std::string* out, const Words& words, std::size_t count) {
  *out += '*';
  *out += std::to_string(count);
  *out += "\r\n";
  for (const std::string_view word : words) {
    *out += '$';
    *out += std::to_string(word.size());
    *out += "\r\n";
    *out += word;
    *out += "\r\n";
  }
}

Result<std::int64_t> ToNumber(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Status(Code::kCorrupt, "Redis sent something that is no number where one belongs");
  }
  return number;
}

}  // namespace

void AppendCommand(std::string* out, std::initializer_list<std::string_view> words) {
  Append(out, words, words.size());
}
void AppendCommand(std::string* out, std::span<const std::string> words) { Append(out, words, words.size()); }

void RespParser::Add(std::span<const std::byte> bytes) {
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
  } else if (start_ > (64U << 10)) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<bool> RespParser::Next(RespReply* reply) {
  if (buffer_.size() - start_ < need_ || buffer_.size() == start_) return false;
  std::size_t at = start_;
  need_ = 0;
  Result<bool> whole = Parse(&at, reply, 0);
  if (!whole.ok() || !*whole) return whole;
  start_ = at;
  return true;
}

Result<bool> RespParser::Line(std::size_t* at, std::string_view* line) const {
  const std::size_t end = buffer_.find("\r\n", *at);
  const std::size_t size = (end == std::string::npos ? buffer_.size() : end) - *at;
  if (size > kMaxLine) return Status(Code::kCorrupt, "Redis sent a line without an end");
  if (end == std::string::npos) return false;
  *line = std::string_view(buffer_).substr(*at, size);
  *at = end + 2;
  return true;
}

Result<bool> RespParser::Parse(std::size_t* at, RespReply* reply, int depth) {
  if (depth > kMaxDepth) return Status(Code::kCorrupt, "Redis sent arrays nested too deeply");
  std::string_view line;
  if (Result<bool> whole = Line(at, &line); !whole.ok() || !*whole) return whole;
  if (line.empty()) return Status(Code::kCorrupt, "Redis sent an empty line where a reply belongs");
  *reply = {};
  const std::string_view rest = line.substr(1);
  switch (line[0]) {
    case '+':
    case '-':
      reply->type = line[0] == '+' ? RespReply::Type::kText : RespReply::Type::kError;
      reply->text = rest;
      return true;
    case ':': {
      const Result<std::int64_t> number = ToNumber(rest);
      if (!number.ok()) return number.status();
      reply->type = RespReply::Type::kNumber;
      reply->number = number.value();
      return true;
    }
    case '$': {
      const Result<std::int64_t> size = ToNumber(rest);
      if (!size.ok()) return size.status();
      if (size.value() == -1) return true;
      if (size.value() < 0 || static_cast<std::uint64_t>(size.value()) > kMaxBytes) {
        return Status(Code::kCorrupt, Cat("Redis sent a string of ", size.value(), " bytes"));
      }
      const auto bytes = static_cast<std::size_t>(size.value());
      if (buffer_.size() - *at < bytes + 2) {
        need_ = *at - start_ + bytes + 2;
        return false;
      }
      if (buffer_.compare(*at + bytes, 2, "\r\n") != 0) return Status(Code::kCorrupt, "a string of Redis has no end");
      reply->type = RespReply::Type::kBytes;
      reply->text.assign(buffer_, *at, bytes);
      *at += bytes + 2;
      return true;
    }
    case '*': {
      const Result<std::int64_t> count = ToNumber(rest);
      if (!count.ok()) return count.status();
      if (count.value() == -1) return true;
      if (count.value() < 0 || static_cast<std::uint64_t>(count.value()) > kMaxItems) {
        return Status(Code::kCorrupt, Cat("Redis sent an array of ", count.value(), " items"));
      }
      reply->type = RespReply::Type::kArray;
      for (std::int64_t i = 0; i < count.value(); ++i) {  // grows with what is there, not with what is claimed
        if (Result<bool> whole = Parse(at, &reply->items.emplace_back(), depth + 1); !whole.ok() || !*whole)
          return whole;
      }
      return true;
    }
    default:
      return Status(Code::kCorrupt, "what answers is no Redis (unknown type of reply)");
  }
}

}  // namespace manta::control
