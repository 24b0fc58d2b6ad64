// Trial is what a training function sees of its trial; Trainable is the base of training classes. Both run in a process
// of their own.
//
//   void Train(tune::Trial& trial) {
//     for (int i = trial.Restored() ? Load(trial.CheckpointFolder()) : 0; i < 81; ++i)
//       trial.Report({{"loss", Step(trial.Get<double>("lr"))}}, trial.Every(10) ? Save(trial.NewFolder())
//                                                                               : tune::kNoCheckpoint);
//   }
//
// Report may be called by one thread at a time. It returns when the run has decided that the trial continues; when the
// trial is stopped, it throws an object that is no std::exception, and the function must let it pass.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>

#include "manta/tune/events.h"

namespace manta::tune {

inline const std::string kNoCheckpoint;

namespace internal {
class Session;
[[noreturn]] void ThrowWrongType(const std::string& key, const Value& value, const char* wanted);
}  // namespace internal

class Trial {
 public:
  explicit Trial(internal::Session& session) : session_(session) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  [[nodiscard]] const Config& config() const;
  // The value of a key. An integer is given as a double if T asks for that. Throws std::invalid_argument for a key that
  // the configuration does not have (the text suggests the spelling) and for a value of another type.
  template <class T>
  [[nodiscard]] T Get(const std::string& key) const {
    const Value& value = Find(key);
    if constexpr (std::is_same_v<T, bool>) {
      if (const auto* yes = std::get_if<bool>(&value)) return *yes;
      internal::ThrowWrongType(key, value, "bool");
    } else if constexpr (std::is_integral_v<T>) {
      if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<T>(*integer);
      internal::ThrowWrongType(key, value, "an integer");
    } else if constexpr (std::is_floating_point_v<T>) {
      if (const auto* real = std::get_if<double>(&value)) return static_cast<T>(*real);
      if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<T>(*integer);
      internal::ThrowWrongType(key, value, "a number");
    } else {
      if (const auto* text = std::get_if<std::string>(&value)) return T(*text);
      internal::ThrowWrongType(key, value, "text");
    }
  }

  // Whether there is a checkpoint to begin from, and its folder (throws std::logic_error if there is none).
  [[nodiscard]] bool Restored() const;
  [[nodiscard]] const std::string& CheckpointFolder() const;
  // An empty folder to write the next checkpoint to; pass it to Report.
  [[nodiscard]] std::string NewFolder();
  // Whether the next result is one in n: with n = 10, the results 10, 20, 30, …
  [[nodiscard]] bool Every(std::int64_t n) const { return n > 0 && (iteration() + 1) % n == 0; }

  // Reports one result. The checkpoint becomes visible as a whole or not at all.
  void Report(const Metrics& metrics, const std::string& checkpoint = kNoCheckpoint);

  [[nodiscard]] std::int64_t iteration() const;  // of the last result, also of one before a restart
  [[nodiscard]] TrialNumber number() const;
  [[nodiscard]] const std::string& id() const;
  [[nodiscard]] const std::string& folder() const;  // the trial's own

 private:
  [[nodiscard]] const Value& Find(const std::string& key) const;
  internal::Session& session_;
};

// A class trainable. The run calls Step once per notification, saves it when it is paused or due, and may give it
// another configuration. Setup is called once, in the process of the trial.
class Trainable {
 public:
  virtual ~Trainable() = default;
  virtual void Setup(const Config&) {}
  // One iteration. "done": true in the result ends the trial; "should_checkpoint": true asks for a checkpoint.
  virtual Metrics Step() = 0;
  virtual void SaveCheckpoint(const std::string& folder) = 0;
  virtual void LoadCheckpoint(const std::string& folder) = 0;
  // Takes over another configuration without a new process; false: it cannot.
  virtual bool ResetConfig(const Config&) { return false; }
  virtual void Cleanup() {}
};

}  // namespace manta::tune
