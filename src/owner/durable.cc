#include "owner/durable.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>

#include "base/fd.h"

namespace manta::owner {
namespace {

constexpr std::size_t kPart = 4U << 20;

std::string KeyOf(const Id& job, const Id& object) { return Cat("durable/", ToHex(job), "/", ToHex(object)); }
std::string PartKey(const std::string& key, std::uint64_t part) { return Cat(key, "/", part); }
std::uint64_t PartsOf(std::uint64_t size) { return (size + kPart - 1) / kPart; }

Status Failed(const std::string& what) { return Status(Code::kIo, Cat(what, ": ", std::strerror(errno))); }

std::string FileOf(const std::string& folder, const Id& object) { return Cat(folder, "/objects/", ToHex(object)); }

Status SyncFolder(const std::string& path) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return Failed(Cat("cannot sync ", path));
  return {};
}

}  // namespace

// One value on its way into the store: part after part, then the key that says that all are there.
class DurableValues::Writing : public std::enable_shared_from_this<Writing> {
 public:
  Writing(wire::ControlClient& client, std::string key, std::span<const std::byte> value)
      : client_(client), key_(std::move(key)), value_(value) {}
  [[nodiscard]] std::future<Status> future() { return done_.get_future(); }
  void End(const Status& status) { done_.set_value(status); }

  void Next() {
    const std::uint64_t parts = PartsOf(value_.size());
    const auto then = [self = shared_from_this()](const Result<wire::ControlWritten>& written) {
      if (!written.ok()) return self->done_.set_value(written.status());
      ++self->part_;
      self->Next();
    };
    if (part_ > parts) return done_.set_value({});
    if (part_ == parts) {
      const std::uint64_t size = value_.size();
      return client_.Put(wire::Table::kObjects, key_, std::string(reinterpret_cast<const char*>(&size), sizeof size),
                         then);
    }
    const std::span<const std::byte> part =
        value_.subspan(part_ * kPart, std::min<std::size_t>(kPart, value_.size() - part_ * kPart));
    client_.Put(wire::Table::kObjects, PartKey(key_, part_),
                std::string(reinterpret_cast<const char*>(part.data()), part.size()), then);
  }

 private:
  wire::ControlClient& client_;
  const std::string key_;
  const std::span<const std::byte> value_;
  std::uint64_t part_ = 0;
  std::promise<Status> done_;
};

class DurableValues::Reading : public std::enable_shared_from_this<Reading> {
 public:
  Reading(wire::ControlClient& client, std::string key, OnFound done)
      : client_(client), key_(std::move(key)), done_(std::move(done)) {}

  void Begin() {
    client_.Get(wire::Table::kObjects, key_, [self = shared_from_this()](const Result<wire::ControlValue>& value) {
      if (!value.ok()) return self->done_(value.status());
      std::uint64_t size = 0;
      if (value.value().version == 0) return self->done_(Status(Code::kNotFound, "it was not put as durable"));
      if (value.value().value.size() != sizeof size) return self->done_(Torn());
      std::memcpy(&size, value.value().value.data(), sizeof size);
      self->left_ = size;
      self->Next();
    });
  }

 private:
  static Status Torn() { return Status(Code::kCorrupt, "a durable value in the control store makes no sense"); }
  void Next() {
    if (left_ == 0) return done_(std::move(bytes_));
    client_.Get(wire::Table::kObjects, PartKey(key_, part_++),
                [self = shared_from_this()](const Result<wire::ControlValue>& value) {
                  if (!value.ok()) return self->done_(value.status());
                  const std::string& part = value.value().value;
                  if (part.empty() || part.size() > self->left_) return self->done_(Torn());
                  const auto* data = reinterpret_cast<const std::byte*>(part.data());
                  self->bytes_.insert(self->bytes_.end(), data, data + part.size());
                  self->left_ -= part.size();
                  self->Next();
                });
  }

  wire::ControlClient& client_;
  const std::string key_;
  const OnFound done_;
  std::uint64_t left_ = 0;
  std::uint64_t part_ = 0;
  std::vector<std::byte> bytes_;
};

DurableValues::DurableValues(far::Thread& thread, std::string head, std::shared_ptr<wire::Secrets> secrets,
                             NodeNumber home)
    : thread_(thread), home_(home) {
  thread_.Post([this, head = std::move(head), secrets = std::move(secrets)] {
    client_ =
        std::make_unique<wire::ControlClient>(thread_.loop(), wire::ConnectOverTcp(thread_.loop(), head, secrets));
  });
}

DurableValues::~DurableValues() {
  std::promise<void> gone;
  thread_.Post([this, &gone] {
    client_.reset();
    gone.set_value();
  });
  gone.get_future().wait();
}

Status DurableValues::Keep(const Id& job, const Id& object, std::span<const std::byte> value) {
  std::promise<std::shared_ptr<Writing>> begun;
  thread_.Post([&] {
    auto writing = std::make_shared<Writing>(*client_, KeyOf(job, object), value);
    begun.set_value(writing);
    if (home_ == 0 || home_is_known_) return writing->Next();
    client_->Put(wire::Table::kObjects, Cat("durable-of/", home_, "/", ToHex(job)), "1",
                 [this, writing](const Result<wire::ControlWritten>& written) {
                   if (!written.ok()) return writing->End(written.status());
                   home_is_known_ = true;
                   writing->Next();
                 });
  });
  return begun.get_future().get()->future().get();
}

void DurableValues::Find(const Id& job, const Id& object, OnFound done) {
  thread_.Post([this, key = KeyOf(job, object), done = std::move(done)]() mutable {
    std::make_shared<Reading>(*client_, std::move(key), std::move(done))->Begin();
  });
}

void DurableValues::Forget(const Id& job, const Id& object) {
  thread_.Post([this, key = KeyOf(job, object)] {
    client_->Get(wire::Table::kObjects, key, [this, key](const Result<wire::ControlValue>& value) {
      std::uint64_t size = 0;
      if (!value.ok() || value.value().value.size() != sizeof size) return;
      std::memcpy(&size, value.value().value.data(), sizeof size);
      const auto ignore = [](const Result<wire::ControlWritten>&) {};
      client_->Delete(wire::Table::kObjects, key, ignore);
      for (std::uint64_t part = 0; part < PartsOf(size); ++part) {
        client_->Delete(wire::Table::kObjects, PartKey(key, part), ignore);
      }
    });
  });
}

Status KeepInFolder(const std::string& folder, const Id& object, std::span<const std::byte> value) {
  const std::string values = folder + "/objects";
  if (mkdir(values.c_str(), 0700) == 0) {
    if (Status s = SyncFolder(folder); !s.ok()) return s;
  } else if (errno != EEXIST) {
    return Failed(Cat("cannot make ", values));
  }
  const std::string path = FileOf(folder, object);
  const std::string fresh = path + ".new";
  const base::Fd fd(open(fresh.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  if (!fd.valid()) return Failed(Cat("cannot make ", fresh));
  for (std::size_t at = 0; at < value.size();) {
    const ssize_t count = write(fd.get(), value.data() + at, value.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const Status failed = Failed(Cat("cannot write ", Bytes(value.size()), " to ", fresh));
      unlink(fresh.c_str());
      return failed;
    }
    at += static_cast<std::size_t>(count);
  }
  Status failed;
  if (fdatasync(fd.get()) != 0) {
    failed = Failed(Cat("cannot sync ", fresh));
  } else if (rename(fresh.c_str(), path.c_str()) != 0) {
    failed = Failed(Cat("cannot name ", path));
  } else {
    return SyncFolder(values);
  }
  unlink(fresh.c_str());
  return failed;
}

Result<std::vector<std::byte>> FindInFolder(const std::string& folder, const Id& object) {
  const base::Fd fd(open(FileOf(folder, object).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return Status(Code::kNotFound, "it was not put as durable");
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = pread(fd.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failed(Cat("cannot read ", FileOf(folder, object)));
    at += static_cast<std::size_t>(count);
  }
  return bytes;
}

void ForgetInFolder(const std::string& folder, const Id& object) { unlink(FileOf(folder, object).c_str()); }

}  // namespace manta::owner
