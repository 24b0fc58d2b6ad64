// What the daemons say: one line for each message, on standard error, with the time (UTC), a letter for its level and
// the program's name:
//
//   2026-11-18 13:12:01.250 W mantad: the connection to the head at 10.0.0.7:6400 was lost; trying again
//
// When standard error is a file, as `manta start` makes it, the file is rotated: at kMostLogBytes it becomes FILE.1,
// FILE.1 becomes FILE.2, and so on; kOldLogs of them are kept.
//
// Threads: any. A line is written by one write, so that lines of several threads do not mix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace manta::base {

enum class LogLevel : std::uint8_t { kInfo = 0, kWarning = 1, kError = 2 };

inline constexpr std::size_t kMostLogBytes = std::size_t{16} << 20;
inline constexpr int kOldLogs = 3;

struct LogSettings {
  std::string program = "manta";
  LogLevel least = LogLevel::kInfo;  // messages below it are dropped
  std::size_t most_bytes = kMostLogBytes;
  int old_files = kOldLogs;
};

// At the start of main, before there are other threads. $MANTA_LOG_LEVEL (info, warning, error) goes before `least`.
void SetUpLog(LogSettings settings);

// As printf, without a newline at the end.
[[gnu::format(printf, 1, 2)]] void LogInfo(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void LogWarning(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void LogError(const char* format, ...);

}  // namespace manta::base
