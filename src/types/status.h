// Status says whether something worked and, if not, what a caller can do about it. Inside the
// engine nothing throws: functions return Status or Result<T>. The public API turns a failed
// Status into the exception of the same code (include/manta/errors.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "manta/errors.h"
#include "types/text.h"

namespace manta {

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value, or why there is none. Never holds an ok Status.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}           // NOLINT(google-explicit-constructor)
  Result(Status failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<1>(state_); }
  [[nodiscard]] T& value() { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace manta
