// LogWriter makes batches durable, many at a time: whatever has been queued while the disk was busy goes out in one
// write and one fdatasync (group commit). One thread of its own does that; the loop is told through a descriptor.
//
// Zeros are written ahead of the records, because fdatasync of bytes inside a file costs half of one that also grows
// the file.
//
// Invariants: (1) records reach the log in the order of Add; (2) a batch is taken with an ok status only after its
// bytes are on the disk; (3) after a failed write the log holds nothing of the failed group; if that cannot be had
// (fdatasync failed, after which the kernel may have dropped the bytes), the log is broken for good: everything fails
// until it is opened again.
//
// Threads: all methods are the loop's.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "control/log_format.h"
#include "control/storage.h"

namespace manta::control {

// A batch on its way to the disk.
struct Pending {
  Batch batch;
  Storage::OnApplied done;
  std::size_t bytes = 0;  // about
  std::int64_t asked_us = 0;
  // Set by the writer:
  Status status;
  std::uint64_t segment = 0;  // that holds it
  std::uint64_t offset = 0;   // there
};

class LogWriter {
 public:
  // Makes segment `number` in `folder` and goes on from there.
  static Result<std::unique_ptr<LogWriter>> Start(std::string folder, std::uint64_t number,
                                                  std::uint64_t durable_before, std::uint64_t segment_bytes);
  // Writes out what was added.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void Add(std::unique_ptr<Pending> pending);
  // Readable when Take has something to give.
  [[nodiscard]] int fd() const { return ready_.get(); }
  // Makes fd readable; from any thread.
  void Wake();
  std::vector<std::unique_ptr<Pending>> Take();

 private:
  LogWriter(std::string folder, std::uint64_t segment_bytes);

  // The rest is the thread's.
  void Run();
  Status Roll();
  Status WriteOut(std::vector<std::unique_ptr<Pending>>& group);
  void WriteAhead(std::uint64_t end);
  Status Cut(Status why);

  const std::string folder_;
  const std::uint64_t segment_bytes_;
  base::Fd ready_;

  base::Fd file_;
  std::uint64_t number_ = 0;
  std::uint64_t offset_ = 0;   // where the next record goes
  std::uint64_t written_ = 0;  // the file's size: zeros from offset_ on
  std::uint64_t durable_ = 0;  // sequence
  Status broken_;
  std::string buffer_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::unique_ptr<Pending>> queue_;      // guarded by mutex_
  std::vector<std::unique_ptr<Pending>> finished_;  // guarded by mutex_
  bool stop_ = false;                               // guarded by mutex_
  std::thread thread_;
};

[[nodiscard]] std::string SegmentName(std::uint64_t number);
// The numbers of all segments in the folder, ascending.
[[nodiscard]] Result<std::vector<std::uint64_t>> ListSegments(const std::string& folder);
[[nodiscard]] Status SyncFolder(const std::string& folder);
// kIo with errno's text and, for a full disk, what to do; `path` is a place on it, to tell how full.
[[nodiscard]] Status DiskError(const std::string& what, int error, const std::string& path = {});
// " (12.0 KiB free of 6.0 MiB)", or nothing if that cannot be told.
[[nodiscard]] std::string RoomAt(const std::string& path);

}  // namespace manta::control
