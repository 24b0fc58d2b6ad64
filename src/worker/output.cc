#include "worker/output.h"

#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <vector>

namespace manta::worker {
namespace {

// A line longer than this is written in pieces: a program that never ends its line must not eat the memory.
constexpr std::size_t kLongLine = 64U << 10;

// What one thread has written to one stream and not ended with a newline.
struct Line {
  std::string text;
  std::string_view label;  // of its beginning
};

// One thread's unfinished lines. Reached by others only under Output::mutex.
struct ThreadLines {
  Line of[2];
};

// Of one pipe, under Output::mutex.
struct Pipe {
  int fd = -1;
  std::string label;                     // the last one written
  const ThreadLines* open_by = nullptr;  // whose overlong line has begun here and not ended
};

// Lives for ever: statics may print in their destructors.
struct Output {
  std::mutex mutex;
  Pipe pipes[2] = {{STDOUT_FILENO, {}, nullptr}, {STDERR_FILENO, {}, nullptr}};
  std::vector<ThreadLines*> threads;
};
Output& Out() {
  static Output* out = new Output;
  return *out;
}

// A label as one word, 16 bits of length above 48 of address, so that threads can read it without a lock.
std::atomic<std::uint64_t> process_label{0};
constexpr int kAddressBits = 48;

std::atomic<const std::string*> own_label{nullptr};  // SetProcessLabel
std::atomic<bool> installed{false};

thread_local std::string_view thread_label;
thread_local bool unfinished = false;  // this thread has a line to flush
thread_local ThreadLines* thread_lines = nullptr;

std::string_view Label() {
  if (!thread_label.empty()) return thread_label;
  const std::uint64_t word = process_label.load(std::memory_order_relaxed);
  return {reinterpret_cast<const char*>(word & ((1ULL << kAddressBits) - 1)), word >> kAddressBits};
}

void WriteFully(int fd, iovec* parts, int count) {
  while (count > 0) {
    const ssize_t wrote = writev(fd, parts, count);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return;  // the daemon is gone, and soon this process
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    auto left = static_cast<std::size_t>(wrote);
    while (count > 0 && left >= parts->iov_len) {
      left -= parts->iov_len;
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + left;
      parts->iov_len -= left;
    }
  }
}

iovec Part(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

// Under the mutex: first and second as one piece of text, after the label if it is another than before.
void Emit(Pipe* pipe, const ThreadLines* writer, std::string_view label, std::string_view first,
          std::string_view second) {
  iovec parts[6];
  int count = 0;
  const bool new_label = pipe->label != label;
  if (pipe->open_by != nullptr && (new_label || pipe->open_by != writer)) parts[count++] = Part("\n");
  if (new_label) {
    parts[count++] = Part("\x01");
    parts[count++] = Part(label);
    parts[count++] = Part("\n");
  }
  if (!first.empty()) parts[count++] = Part(first);
  if (!second.empty()) parts[count++] = Part(second);
  pipe->open_by = (second.empty() ? first : second).back() == '\n' ? nullptr : writer;
  WriteFully(pipe->fd, parts, count);
  if (new_label) pipe->label = label;
}

// Under the mutex: writes and ends the thread's line, if it has one.
void EndLine(Pipe* pipe, const ThreadLines* writer, Line* line) {
  if (line->text.empty() && pipe->open_by != writer) return;
  Emit(pipe, writer, line->text.empty() ? std::string_view(pipe->label) : line->label, line->text, "\n");
  line->text.clear();
}

void EndLines(Output* out, ThreadLines* lines) {
  for (int stream = 0; stream < 2; ++stream) EndLine(&out->pipes[stream], lines, &lines->of[stream]);
}

// Takes the thread's lines to their end when the thread ends. What its other thread_local destructors
// print after that makes new ones, which FlushAllOutput() finds.
struct ThreadEnd {
  ~ThreadEnd() {
    FlushOutput();
    Output& out = Out();
    const std::lock_guard lock(out.mutex);
    std::erase(out.threads, thread_lines);
    delete thread_lines;
    thread_lines = nullptr;
  }
};

ThreadLines* MyLines() {  // under the mutex
  if (thread_lines == nullptr) {
    thread_lines = new ThreadLines;
    Out().threads.push_back(thread_lines);
    static thread_local ThreadEnd at_end;
    (void)at_end;
  }
  return thread_lines;
}

void Write(int stream, std::string_view text) {
  if (text.empty()) return;
  const int error = errno;  // printf must not change it
  Output& out = Out();
  {
    const std::lock_guard lock(out.mutex);
    Pipe* pipe = &out.pipes[stream];
    ThreadLines* lines = MyLines();
    Line* line = &lines->of[stream];
    if (line->text.empty()) line->label = Label();
    const std::size_t end = text.rfind('\n');
    if (end != std::string_view::npos) {
      Emit(pipe, lines, line->label, line->text, text.substr(0, end + 1));
      line->text.clear();
      line->label = Label();
      text.remove_prefix(end + 1);
    }
    line->text.append(text);
    if (line->text.size() >= kLongLine) {
      Emit(pipe, lines, line->label, line->text, {});
      line->text = std::string();
    }
    unfinished = false;
    for (int i = 0; i < 2; ++i) unfinished |= !lines->of[i].text.empty() || out.pipes[i].open_by == lines;
  }
  errno = error;
}

ssize_t CookieWrite(void* cookie, const char* data, std::size_t size) {
  Write(static_cast<int>(reinterpret_cast<std::intptr_t>(cookie)), {data, size});
  return static_cast<ssize_t>(size);
}

// Unbuffered, so that each printf arrives here whole and in its own thread; the line buffers are ours.
FILE* OpenStream(int stream) {
  cookie_io_functions_t functions{};
  functions.write = CookieWrite;
  FILE* file = fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(stream)), "w", functions);
  if (file == nullptr) return nullptr;
  setvbuf(file, nullptr, _IONBF, 0);
  file->_fileno = stream == 0 ? STDOUT_FILENO : STDERR_FILENO;  // for isatty(fileno(stdout)) and the like
  return file;
}

class StreamBuffer : public std::streambuf {
 public:
  explicit StreamBuffer(int stream) : stream_(stream) {}

 protected:
  int overflow(int c) override {
    if (c == traits_type::eof()) return 0;
    const char letter = traits_type::to_char_type(c);
    Write(stream_, {&letter, 1});
    return c;
  }
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    Write(stream_, {data, static_cast<std::size_t>(size)});
    return size;
  }

 private:
  int stream_;
};

}  // namespace

void InstallOutput() {
  (void)Out();  // made now: its first use may be in a signal, which must not allocate
  std::cout.flush();
  std::fflush(nullptr);
  // Now, so that a later call of the user's changes nothing: it would give cout its own buffers again.
  std::ios_base::sync_with_stdio(false);
  static auto* to_stdout = new StreamBuffer(0);
  static auto* to_stderr = new StreamBuffer(1);
  std::cout.rdbuf(to_stdout);
  std::cerr.rdbuf(to_stderr);
  std::clog.rdbuf(to_stderr);
  // A FILE* that somebody kept still works, with the label written last.
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (FILE* file = OpenStream(0)) stdout = file;
  if (FILE* file = OpenStream(1)) stderr = file;
  // A child that the user forks may print.
  pthread_atfork([] { Out().mutex.lock(); }, [] { Out().mutex.unlock(); }, [] { Out().mutex.unlock(); });
  std::atexit(FlushAllOutput);
  installed.store(true, std::memory_order_release);
}

void SetProcessLabel(std::string_view label) {
  own_label.store(new std::string(label), std::memory_order_release);  // kept for ever: lines point to it
  SetLabel(label);
}

void SetLabel(std::string_view label) {
  FlushOutput();
  if (const std::string* own = own_label.load(std::memory_order_acquire); own != nullptr) label = *own;
  thread_label = label.substr(0, 0xffff);
  const auto address = reinterpret_cast<std::uint64_t>(thread_label.data());
  const bool fits = address >> kAddressBits == 0;
  process_label.store(fits ? address | static_cast<std::uint64_t>(thread_label.size()) << kAddressBits : 0,
                      std::memory_order_relaxed);
}

void FlushOutput() {
  if (!unfinished) return;
  Output& out = Out();
  const std::lock_guard lock(out.mutex);
  EndLines(&out, thread_lines);
  unfinished = false;
}

void FlushAllOutput() {
  FlushOutput();
  {
    Output& out = Out();
    const std::lock_guard lock(out.mutex);
    for (ThreadLines* lines : out.threads) EndLines(&out, lines);
  }
  std::fflush(nullptr);
}

void FlushOutputInSignal() {
  if (!installed.load(std::memory_order_acquire)) return;
  Output& out = Out();
  if (!out.mutex.try_lock()) return;
  for (int stream = 0; stream < 2; ++stream) {
    const Pipe& pipe = out.pipes[stream];
    // The label is written, but not noted in the pipe: that could allocate. The next line then says it again.
    iovec mark[] = {Part(pipe.open_by != nullptr ? "\n\x01" : "\x01"), Part(Label()), Part("\n")};
    if (pipe.label != Label()) WriteFully(pipe.fd, mark, 3);
    for (ThreadLines* lines : out.threads) {
      if (lines->of[stream].text.empty()) continue;
      iovec parts[] = {Part(lines->of[stream].text), Part("\n")};
      WriteFully(pipe.fd, parts, 2);
      lines->of[stream].text.clear();
    }
  }
  out.mutex.unlock();
}

}  // namespace manta::worker
