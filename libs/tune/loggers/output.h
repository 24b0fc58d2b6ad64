// Output is a file that lines are appended to. A full disk keeps them in memory until Flush succeeds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace manta::tune::loggers {

class Output {
 public:
  // Appends to the file, which is created at the first Flush.
  explicit Output(std::string path) : path_(std::move(path)) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();  // flushes; what the disk does not take is lost

  std::string& buffer() { return buffer_; }
  bool full() const { return buffer_.size() >= kMost; }
  // False: the disk is full, and why() says so. Throws std::runtime_error for every other failure.
  bool Flush();
  // Releases the descriptor; the next Flush opens the file again.
  void Close();
  const std::string& path() const { return path_; }
  const std::string& why() const { return why_; }

 private:
  static constexpr std::size_t kMost = 64 << 10;
  std::string path_;
  std::string buffer_;
  std::string why_;
  int fd_ = -1;
};

}  // namespace manta::tune::loggers
