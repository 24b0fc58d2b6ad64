// What can go wrong, as seen by a user: one family of exceptions under manta::Error. Each message
// says what failed, where, with the numbers, and what to do next.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace manta {

// Named for what the caller can do. The numbers cross processes: only append.
enum class Code : std::uint8_t {
  kOk = 0,
  kTaskFailed = 1,     // the user's function threw
  kWorkerCrashed = 2,  // its process died under it (signal, exit, kill)
  kActorDied = 3,      // the actor is gone and will not come back
  kLost = 4,           // the value existed and cannot be had any more
  kTimedOut = 5,
  kCancelled = 6,
  kOutOfMemory = 7,   // the store, or the machine, is full
  kInfeasible = 8,    // asks for more than the cluster has
  kInvalid = 9,       // wrong argument, configuration or state: fix the program
  kNotFound = 10,     // no such name
  kUnavailable = 11,  // the cluster cannot be reached, or is shutting down
  kCorrupt = 12,      // bytes from another process that make no sense
  kIo = 13,           // disk full, too few file descriptors, …
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// One class per code, so that `catch (const manta::TimeoutError&)` works.
#define MANTA_ERROR(NAME, CODE)                                         \
  class NAME : public Error {                                           \
   public:                                                              \
    explicit NAME(const std::string& message) : Error(CODE, message) {} \
  };
MANTA_ERROR(WorkerCrashedError, Code::kWorkerCrashed)
MANTA_ERROR(ActorDiedError, Code::kActorDied)
MANTA_ERROR(LostError, Code::kLost)
MANTA_ERROR(TimeoutError, Code::kTimedOut)
MANTA_ERROR(CancelledError, Code::kCancelled)
MANTA_ERROR(OutOfMemoryError, Code::kOutOfMemory)
MANTA_ERROR(InfeasibleError, Code::kInfeasible)
MANTA_ERROR(InvalidError, Code::kInvalid)
MANTA_ERROR(NotFoundError, Code::kNotFound)
MANTA_ERROR(UnavailableError, Code::kUnavailable)
MANTA_ERROR(CorruptError, Code::kCorrupt)
MANTA_ERROR(IoError, Code::kIo)
#undef MANTA_ERROR

// A value is lost because the task that made it was run again and did something else than before: it called other
// functions, or put other values.
class NondeterminismError : public LostError {
 public:
  explicit NondeterminismError(const std::string& message) : LostError(message) {}
};

// The user's function threw. what() is the whole story: task, type, message and stack.
class TaskError : public Error {
 public:
  TaskError(const std::string& message, std::string type, std::string cause)
      : Error(Code::kTaskFailed, message), type_(std::move(type)), cause_(std::move(cause)) {}
  [[nodiscard]] const std::string& type() const noexcept { return type_; }    // "std::out_of_range"
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }  // its what()

 private:
  std::string type_;
  std::string cause_;
};

}  // namespace manta
