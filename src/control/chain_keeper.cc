#include "control/chain_keeper.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "control/log_writer.h"

namespace manta::control {
namespace {

constexpr std::int64_t kSaveAgainUs = 100'000;

}  // namespace

DiskKeeper::~DiskKeeper() {
  if (ready_.valid()) loop_.Unwatch(ready_.get());
  if (again_ != 0) loop_.Cancel(again_);
  if (thread_.joinable()) thread_.join();
}

Result<SavedChain> DiskKeeper::Take(const Opening& opening) {
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    return DiskError(Cat("cannot make folder ", folder_), errno);
  }
  const std::string lock = folder_ + "/lock";
  lock_.Reset(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return DiskError(Cat("cannot open ", lock), errno);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(Code::kInvalid,
                  Cat("the chain whose configuration is in ", folder_, " has a front already; stop that one first"));
  }
  Result<SavedChain> loaded = LoadChain(Where());
  if (!loaded.ok() && loaded.status().code() != Code::kNotFound) return loaded.status();
  Result<SavedChain> next = opening(loaded.ok() ? std::optional(std::move(*loaded)) : std::nullopt);
  if (!next.ok()) return next;
  if (Status status = SaveChain(Where(), *next); !status.ok()) return status;
  ready_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ready_.valid()) return Status(Code::kIo, Cat("cannot make an eventfd: ", std::strerror(errno)));
  if (Status status = loop_.Watch(ready_.get(), EPOLLIN, [this](std::uint32_t) { Finish(); }); !status.ok()) {
    return status;
  }
  return next;
}

void DiskKeeper::Save(const SavedChain& chain, std::function<void(const Status&)> done) {
  saving_ = chain;
  on_saved_ = std::move(done);
  Begin();
}

void DiskKeeper::Begin() {
  thread_ = std::thread([this] {
    saved_ = SaveChain(Where(), saving_);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = write(ready_.get(), &one, sizeof one);
  });
}

void DiskKeeper::Finish() {
  std::uint64_t count = 0;
  if (read(ready_.get(), &count, sizeof count) != sizeof count) return;
  thread_.join();
  if (!saved_.ok()) {
    if (!std::exchange(troubled_, true)) {
      base::LogWarning("%s (tried again until it succeeds)", saved_.message().c_str());
    }
    again_ = loop_.After(kSaveAgainUs, [this] {
      again_ = 0;
      Begin();
    });
    return;
  }
  troubled_ = false;
  const auto done = std::exchange(on_saved_, nullptr);
  done({});  // which may save the next
}

}  // namespace manta::control
