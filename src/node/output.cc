#include "node/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace manta::node {
namespace {

// Of one turn of the loop, so that a process that prints without end does not starve the others.
constexpr std::size_t kReadPerTurn = 1U << 20;
constexpr std::int64_t kPauseUs = 10'000;
// Lines whose process never said its pid are not kept for ever.
constexpr std::size_t kMaxPending = 10000;

}  // namespace

void LineSplitter::Add(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kMaxLine - partial_.size();
    const std::size_t length = std::min(end, bytes.size());
    if (length > room) {
      partial_.append(bytes.substr(0, room));
      bytes.remove_prefix(room);
      Take(std::exchange(partial_, {}), on_line);
      cut_ = true;
      continue;
    }
    partial_.append(bytes.substr(0, length));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    std::string text = std::exchange(partial_, {});
    // A line of exactly the limit has been passed on already: nothing but its newline is left.
    if (!(cut_ && text.empty())) Take(std::move(text), on_line);
    cut_ = false;
  }
}

void LineSplitter::End(const OnLine& on_line) {
  if (!partial_.empty()) Take(std::exchange(partial_, {}), on_line);
  cut_ = false;
}

void LineSplitter::Take(std::string text, const OnLine& on_line) {
  if (!cut_ && !text.empty() && text.front() == '\1') {
    label_ = text.substr(1);
    return;
  }
  on_line(label_, std::move(text));
}

Status ProcessOutput::Open(base::Fd* write_out, base::Fd* write_error) {
  base::Fd* const writers[2] = {write_out, write_error};
  for (std::size_t i = 0; i < 2; ++i) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return Status(Code::kIo, Cat("cannot make a pipe for a worker's output: ", std::strerror(errno),
                                   errno == EMFILE || errno == ENFILE ? "; raise `ulimit -n`" : ""));
    }
    streams_[i].fd.Reset(ends[0]);
    writers[i]->Reset(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const Status status =
        loop_.Watch(ends[0], EPOLLIN, [this, i](std::uint32_t) { ready_() ? Read(i, kReadPerTurn) : Pause(); });
    if (!status.ok()) return status;
  }
  return {};
}

void ProcessOutput::SetPid(std::uint32_t pid) {
  pid_ = pid;
  for (wire::LogLine& line : pending_) line.pid = pid;
  Flush();
}

void ProcessOutput::Finish() {
  // A pipe holds at most 1 MiB (the default limit of an unprivileged user): this ends even if a
  // grandchild goes on printing.
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Read(i, 4U << 20);
    streams_[i].splitter.End([&](const std::string& label, std::string text) { Keep(i, label, std::move(text)); });
  }
  Close();
  Flush();
}

std::string ProcessOutput::Tail() const {
  std::string out;
  for (const std::string& line : tail_) out += "  " + line + "\n";
  return out;
}

void ProcessOutput::Read(std::size_t index, std::size_t limit) {
  Stream& stream = streams_[index];
  std::size_t total = 0;
  char buffer[64U << 10];
  while (stream.fd.valid() && total < limit) {
    const ssize_t got = read(stream.fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    const auto keep = [&](const std::string& label, std::string text) { Keep(index, label, std::move(text)); };
    if (got <= 0) {
      stream.splitter.End(keep);
      loop_.Unwatch(stream.fd.get());
      stream.fd.Reset(-1);
      break;
    }
    total += static_cast<std::size_t>(got);
    stream.splitter.Add(std::string_view(buffer, static_cast<std::size_t>(got)), keep);
  }
  Flush();
}

void ProcessOutput::Pause() {
  if (paused_ != 0) return;
  for (const Stream& stream : streams_) {
    if (stream.fd.valid()) loop_.Change(stream.fd.get(), 0);
  }
  paused_ = loop_.After(kPauseUs, [this] {
    paused_ = 0;
    for (const Stream& stream : streams_) {
      if (stream.fd.valid()) loop_.Change(stream.fd.get(), EPOLLIN);
    }
  });
}

void ProcessOutput::Keep(std::size_t index, const std::string& label, std::string text) {
  constexpr std::size_t kTailBytes = 500;  // of one line: a crash message is to be read
  tail_.push_back(text.size() <= kTailBytes ? text : text.substr(0, kTailBytes) + "…");
  if (tail_.size() > kTailLines) tail_.pop_front();
  if (pid_ == 0 && pending_.size() >= kMaxPending) return;
  pending_.push_back(wire::LogLine{pid_, index == 1, label, std::move(text)});
}

void ProcessOutput::Flush() {
  if (pid_ == 0 || pending_.empty()) return;
  on_lines_(std::exchange(pending_, {}));
}

void ProcessOutput::Close() {
  loop_.Cancel(paused_);
  paused_ = 0;
  for (Stream& stream : streams_) {
    if (stream.fd.valid()) loop_.Unwatch(stream.fd.get());
    stream.fd.Reset(-1);
  }
}

}  // namespace manta::node
