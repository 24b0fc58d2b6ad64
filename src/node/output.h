// What a worker prints: its two pipes, cut into lines, each line with the label of the task that
// printed it, passed on at once; the last lines are kept to be shown with a crash.
//
// A worker marks the task on a stream with a line of byte 1 and the label ("\1square\n"); the marker
// itself is not shown. A line over kMaxLine is cut into pieces. What follows the last newline is a
// line too, when the stream ends.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "wire/messages.h"

namespace manta::node {

// Cuts one stream into labelled lines. Pure.
class LineSplitter {
 public:
  using OnLine = std::function<void(const std::string& label, std::string text)>;

  static constexpr std::size_t kMaxLine = 64U << 10;

  void Add(std::string_view bytes, const OnLine& on_line);
  void End(const OnLine& on_line);  // what is left is a line

 private:
  void Take(std::string text, const OnLine& on_line);

  std::string label_;
  std::string partial_;
  bool cut_ = false;  // partial_ goes on with a line whose beginning was passed on
};

// The stdout and stderr of one process. Lines go to `on_lines` in batches, one per read. While
// `ready` says no (the driver does not keep up) nothing is read, and the process waits in its write.
class ProcessOutput {
 public:
  using OnLines = std::function<void(std::vector<wire::LogLine> lines)>;
  using Ready = std::function<bool()>;

  static constexpr std::size_t kTailLines = 40;

  ProcessOutput(base::Loop& loop, OnLines on_lines, Ready ready)
      : loop_(loop), on_lines_(std::move(on_lines)), ready_(std::move(ready)) {}
  ~ProcessOutput() { Close(); }
  ProcessOutput(const ProcessOutput&) = delete;
  ProcessOutput& operator=(const ProcessOutput&) = delete;

  // Makes the pipes and reads from them. The writing ends are the caller's to pass on and close.
  Status Open(base::Fd* write_out, base::Fd* write_error);
  // Lines read before the pid is known wait for it.
  void SetPid(std::uint32_t pid);
  // After the process's death: reads what it has written (not to the end of the stream: a grandchild
  // may keep the pipe open) and ends both streams.
  void Finish();
  // The last lines of both streams, each indented by two spaces and ended by a newline.
  [[nodiscard]] std::string Tail() const;

 private:
  struct Stream {
    base::Fd fd;
    LineSplitter splitter;
  };

  void Read(std::size_t index, std::size_t limit);
  void Pause();
  void Keep(std::size_t index, const std::string& label, std::string text);
  void Flush();
  void Close();

  base::Loop& loop_;
  OnLines on_lines_;
  Ready ready_;
  base::Loop::TimerId paused_ = 0;
  std::uint32_t pid_ = 0;
  std::array<Stream, 2> streams_;
  std::vector<wire::LogLine> pending_;
  std::deque<std::string> tail_;
};

}  // namespace manta::node
