#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string_view>
#include <utility>

namespace manta::base {
namespace {

constexpr std::size_t kMostLine = 64U << 10;  // bytes of one message; the rest is cut off

LogSettings& Settings() {
  static auto* settings = new LogSettings();  // messages may come until the process is gone
  return *settings;
}

std::mutex& RotationMutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

std::string TimeNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[64];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03ld", now.tv_nsec / 1'000'000);
  return text;
}

// The file that standard error is; empty: it is none, or has no name any more.
std::string OwnFile() {
  struct stat status{};
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  char path[4096];
  const ssize_t size = readlink("/proc/self/fd/2", path, sizeof path);
  if (size <= 0 || static_cast<std::size_t>(size) == sizeof path) return {};
  std::string file(path, static_cast<std::size_t>(size));
  struct stat named{};
  if (stat(file.c_str(), &named) != 0 || named.st_ino != status.st_ino || named.st_dev != status.st_dev) return {};
  return file;
}

// What fails is left as it is: a log that cannot be rotated goes on growing, which is better than no log.
void RotateIfLarge() {
  const LogSettings& settings = Settings();
  struct stat status{};
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::size_t>(status.st_size) < settings.most_bytes) {
    return;
  }
  const std::lock_guard lock(RotationMutex());
  const std::string file = OwnFile();
  if (file.empty() || fstat(STDERR_FILENO, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < settings.most_bytes) {
    return;
  }
  for (int i = settings.old_files - 1; i >= 1; --i) {
    static_cast<void>(
        std::rename((file + "." + std::to_string(i)).c_str(), (file + "." + std::to_string(i + 1)).c_str()));
  }
  if (settings.old_files > 0 && std::rename(file.c_str(), (file + ".1").c_str()) != 0) return;
  if (settings.old_files <= 0) unlink(file.c_str());
  const int fresh = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fresh < 0) return;
  struct stat out{};
  const bool both = fstat(STDOUT_FILENO, &out) == 0 && out.st_ino == status.st_ino && out.st_dev == status.st_dev;
  dup2(fresh, STDERR_FILENO);
  if (both) dup2(fresh, STDOUT_FILENO);
  close(fresh);
}

void Write(LogLevel level, const char* format, va_list arguments) {
  if (level < Settings().least) return;
  constexpr char kLetters[] = {'I', 'W', 'E'};
  std::string line = TimeNow();
  line += ' ';
  line += kLetters[static_cast<std::size_t>(level)];
  line += ' ';
  line += Settings().program;
  line += ": ";
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  if (size > 0) {
    const std::size_t start = line.size();
    line.resize(start + static_cast<std::size_t>(size) + 1);
    std::vsnprintf(line.data() + start, static_cast<std::size_t>(size) + 1, format, again);
    line.pop_back();
  }
  va_end(again);
  if (line.size() > kMostLine) line = line.substr(0, kMostLine) + " …";
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written <= 0) break;  // nobody is left to be told
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  RotateIfLarge();
}

}  // namespace

void SetUpLog(LogSettings settings) {
  if (const char* level = std::getenv("MANTA_LOG_LEVEL"); level != nullptr) {
    const std::string_view name = level;
    if (name == "info") settings.least = LogLevel::kInfo;
    if (name == "warning") settings.least = LogLevel::kWarning;
    if (name == "error") settings.least = LogLevel::kError;
  }
  Settings() = std::move(settings);
}

void LogInfo(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Write(LogLevel::kInfo, format, arguments);
  va_end(arguments);
}

void LogWarning(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Write(LogLevel::kWarning, format, arguments);
  va_end(arguments);
}

void LogError(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Write(LogLevel::kError, format, arguments);
  va_end(arguments);
}

}  // namespace manta::base
