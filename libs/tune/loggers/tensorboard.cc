// events.out.tfevents.*: records of TensorFlow's TFRecord format, each an Event message in Protocol Buffers encoding.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>

#include "tune/journal/crc32c.h"
#include "tune/loggers/loggers.h"
#include "tune/loggers/output.h"

namespace manta::tune::loggers {
namespace {

constexpr std::string_view kPrefix = "ray/tune/";  // the tags that readers of Ray's files expect

void Varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

template <class T>
void Fixed(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void Number(std::string& out, int field, std::uint64_t value) {
  Varint(out, static_cast<std::uint64_t>(field) << 3);
  Varint(out, value);
}
void Double(std::string& out, int field, double value) {
  Varint(out, static_cast<std::uint64_t>(field) << 3 | 1);
  Fixed(out, value);
}
void Float(std::string& out, int field, float value) {
  Varint(out, static_cast<std::uint64_t>(field) << 3 | 5);
  Fixed(out, value);
}
void Bytes(std::string& out, int field, std::string_view bytes) {
  Varint(out, static_cast<std::uint64_t>(field) << 3 | 2);
  Varint(out, bytes.size());
  out += bytes;
}

std::uint32_t Masked(std::string_view bytes) {
  const std::uint32_t crc = journal::Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

class TensorBoardLogger : public Logger {
 public:
  TensorBoardLogger(const std::string& path, const Config& config, double timestamp) : output_(path), config_(config) {
    event_.clear();
    Double(event_, 1, timestamp);
    Bytes(event_, 3, "brain.Event:2");
    Record();
  }

  void Write(const Row& row) override {
    if (!described_) Describe(row);
    summary_.clear();
    for (const auto& [key, value] : *row.metrics) {
      double number = 0;
      if (const auto* real = std::get_if<double>(&value))
        number = *real;
      else if (const auto* integer = std::get_if<std::int64_t>(&value))
        number = static_cast<double>(*integer);
      else
        continue;
      value_.clear();
      tag_.assign(kPrefix).append(key);
      Bytes(value_, 1, tag_);
      Float(value_, 2, static_cast<float>(number));
      Bytes(summary_, 1, value_);
    }
    Event(row.timestamp, row.iteration);
    if (output_.full()) (void)output_.Flush();
  }
  void End(double timestamp) override {
    if (!described_) return;
    std::string end;
    Number(end, 1, 1);  // success
    Double(end, 2, timestamp);
    Plugin("_hparams_/session_end_info", 4, end, timestamp);
  }
  bool Flush() override { return output_.Flush(); }
  std::string why() const override { return output_.why(); }

 private:
  void Record() {
    std::string length;
    Fixed(length, static_cast<std::uint64_t>(event_.size()));
    std::string& out = output_.buffer();
    out += length;
    Fixed(out, Masked(length));
    out += event_;
    Fixed(out, Masked(event_));
  }
  void Event(double timestamp, std::int64_t step) {
    event_.clear();
    Double(event_, 1, timestamp);
    Number(event_, 2, static_cast<std::uint64_t>(step));
    Bytes(event_, 5, summary_);
    Record();
  }
  // A message of the plug-in for hyperparameters; `field` names its kind in HParamsPluginData.
  void Plugin(std::string_view tag, int field, std::string_view message, double timestamp) {
    std::string content;
    Bytes(content, field, message);
    std::string data;
    Bytes(data, 1, "hparams");
    Bytes(data, 2, content);
    std::string metadata;
    Bytes(metadata, 1, data);
    value_.clear();
    Bytes(value_, 1, tag);
    Bytes(value_, 9, metadata);
    summary_.clear();
    Bytes(summary_, 1, value_);
    Event(timestamp, 0);
  }
  void Describe(const Row& row) {
    described_ = true;
    std::string experiment;
    std::string start;
    for (const auto& [key, value] : config_) {
      std::string info;
      Bytes(info, 1, key);
      const bool text = std::holds_alternative<std::string>(value);
      const bool yes = std::holds_alternative<bool>(value);
      Number(info, 4, text ? 1 : yes ? 2 : 3);
      Bytes(experiment, 4, info);
      std::string packed;
      if (const auto* real = std::get_if<double>(&value)) Double(packed, 2, *real);
      if (const auto* integer = std::get_if<std::int64_t>(&value)) Double(packed, 2, static_cast<double>(*integer));
      if (const auto* words = std::get_if<std::string>(&value)) Bytes(packed, 3, *words);
      if (const auto* flag = std::get_if<bool>(&value)) Number(packed, 4, *flag ? 1 : 0);
      std::string entry;
      Bytes(entry, 1, key);
      Bytes(entry, 2, packed);
      Bytes(start, 1, entry);
    }
    for (const auto& [key, value] : *row.metrics) {
      if (!std::holds_alternative<double>(value)) continue;
      std::string name;
      Bytes(name, 2, std::string(kPrefix) + key);
      std::string metric;
      Bytes(metric, 1, name);
      Bytes(experiment, 5, metric);
    }
    Double(start, 5, row.timestamp);
    Plugin("_hparams_/experiment", 2, experiment, row.timestamp);
    Plugin("_hparams_/session_start_info", 3, start, row.timestamp);
  }

  Output output_;
  Config config_;
  std::string event_, summary_, value_, tag_;
  bool described_ = false;
};

}  // namespace

std::unique_ptr<Logger> MakeTensorBoardLogger(const std::string& folder, const Config& config, const std::string& host,
                                              double timestamp) {
  const std::string path =
      folder + "/events.out.tfevents." + std::to_string(static_cast<std::int64_t>(timestamp)) + "." + host;
  return std::make_unique<TensorBoardLogger>(path, config, timestamp);
}

}  // namespace manta::tune::loggers
