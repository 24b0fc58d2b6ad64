// Journal is the state of a run: a file to which records are appended, never changed.
//
// File: a header of 16 bytes, then records: magic (4), length (4), crc32c of the rest (4), sequence number (8), offset
// up to which the file was known to be on disk when the record was appended (8), bytes. All numbers little-endian.
//
// Group commit: Append collects, Commit writes all of them with one call. A record that Commit has written survives the
// death of the process. Sync makes it survive the machine, too; a thread of the runtime calls it.
//
// Opening: a record that is torn at the end of the file is cut off silently. A damaged record that is followed by an
// intact one is refused with file and offset, unless the intact one says that the damaged part was not on disk yet (the
// machine lost its power): then everything from the damage on is cut.
//
// A full disk is not an error: Commit returns false, keeps what it could not write, and is called again.
//
// Threads: one thread calls everything but Sync, which any thread may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace manta::tune::journal {

struct JournalError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Journal {
 public:
  using Reader = std::function<void(std::uint64_t number, std::string_view record)>;

  // Creates a file that must not exist, or opens one, passes each record to `read` in order and cuts a torn tail.
  // One process may have a journal open for writing: a second one gets JournalError.
  static std::unique_ptr<Journal> Create(const std::string& path);
  static std::unique_ptr<Journal> Open(const std::string& path, const Reader& read);
  // Reads without writing, also while another process appends.
  static void Read(const std::string& path, const Reader& read);

  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal();

  // Returns the number of the record; the first is 0.
  std::uint64_t Append(std::string_view record);
  // Writes what was appended. False: the disk is full (why() says so with the amounts); nothing is lost, call it again.
  // Throws JournalError for every other failure.
  bool Commit();
  // fdatasync. May be called by another thread.
  void Sync();

  std::uint64_t records() const { return next_; }
  std::uint64_t bytes() const { return written_.load() + buffer_.size(); }
  const std::string& path() const { return path_; }
  const std::string& why() const { return why_; }

 private:
  Journal(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
  std::string buffer_;
  std::uint64_t next_ = 0;
  std::atomic<std::uint64_t> written_{0};
  std::atomic<std::uint64_t> synced_{0};
  std::string why_;
};

}  // namespace manta::tune::journal
