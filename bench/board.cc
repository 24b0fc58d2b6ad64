#include "board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace bench {
namespace {

Board& Map(const std::string& file, int flags) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Board)) != 0) throw std::runtime_error("cannot open " + file);
  void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + file);
  return *static_cast<Board*>(memory);
}

}  // namespace

Board& Board::Create(const std::string& file) { return Map(file, O_CREAT | O_EXCL); }

Board& Board::Open(const std::string& file) {
  static Board& board = Map(file, 0);
  return board;
}

Board::Slot& Board::Of(pid_t pid) {
  const auto first = static_cast<std::size_t>(pid) % kSlots;
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots[(first + i) % kSlots];
    std::int32_t nobody = 0;
    if (slot.pid.load() == pid || slot.pid.compare_exchange_strong(nobody, pid) || nobody == pid) return slot;
  }
  throw std::runtime_error("more processes than the board has slots");
}

Execution::Execution(const std::string& file, Kind kind) : slot_(Board::Open(file).Of(::getpid())) {
  Board& board = Board::Open(file);
  (kind == kTask ? board.tasks : board.calls).fetch_add(1);
  if (kind == kSavedCall) board.saved_calls.fetch_add(1);
  slot_.busy.fetch_add(1);
}

}  // namespace bench
