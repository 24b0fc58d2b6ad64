// Copies of an actor's journal (shm/journal.h) on another machine: what has changed since it was last looked at, as
// ranges of the file, and the same written into another file of the same layout.
//
// Only the journal's one writer may look while calls run; anybody else when that process is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "types/journal_part.h"
#include "types/status.h"

namespace manta::shm {

// How far a copy is.
struct JournalMarks {
  std::uint64_t checkpoints = 0;
  std::uint64_t end = 0;      // of the area in use then
  std::uint64_t answers = 0;  // up to this place
  bool given_up = false;
};

// What a copy at `marks` lacks, in the order in which it is to be written: then the copy is whole before it says so.
// *marks is moved on. Nothing: the copy has all.
[[nodiscard]] std::vector<JournalRange> RangesOf(const std::byte* journal, JournalMarks* marks);
[[nodiscard]] std::uint64_t BytesOf(const std::vector<JournalRange>& ranges);
// kCorrupt: a range that lies outside.
[[nodiscard]] Status Check(const std::vector<JournalRange>& ranges);
[[nodiscard]] std::vector<JournalPart> Read(const std::byte* journal, const std::vector<JournalRange>& ranges);
// RangesOf, read.
[[nodiscard]] std::vector<JournalPart> ChangesOf(const std::byte* journal, JournalMarks* marks);
// All there is, of a journal in that file.
[[nodiscard]] Result<std::vector<JournalPart>> AllOf(int fd);
// kCorrupt: a part that lies outside.
[[nodiscard]] Status Write(int fd, const std::vector<JournalPart>& parts);
// Groups of parts, each of about so many bytes at most: a message is not endless.
[[nodiscard]] std::vector<std::vector<JournalPart>> Split(const std::vector<JournalPart>& parts, std::uint64_t bytes);

}  // namespace manta::shm
