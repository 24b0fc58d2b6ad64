#include "control/chain_keeper.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "control/log_writer.h"

namespace manta::control {

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
  return next;
}

void DiskKeeper::Save(const SavedChain& chain, std::function<void(const Status&)> done) {
  done(SaveChain(Where(), chain));  // a small file, and rare: the loop waits for the disk
}

}  // namespace manta::control
