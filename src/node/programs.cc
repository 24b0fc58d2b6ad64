#include "node/programs.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/crypto.h"

namespace manta::node {
namespace {

Status Failed(const std::string& what) { return Status(Code::kIo, Cat(what, ": ", std::strerror(errno))); }

// The descriptor may be O_PATH, or be positioned somewhere.
base::Fd Reopen(int fd) { return base::Fd(open(Cat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC)); }

Result<std::string> HashOf(int file) {
  wire::Sha256 hash;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(1U << 20);
  for (off_t at = 0;;) {
    const ssize_t count = pread(file, buffer.get(), 1U << 20, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed("cannot read the program");
    if (count == 0) return wire::ToHexText(hash.Finish());
    hash.Add(std::span(buffer.get(), static_cast<std::size_t>(count)));
    at += count;
  }
}

}  // namespace

std::string FileName(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return {};
  return Cat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ",
             info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec);
}

Programs::Programs(base::Loop& loop, NodeLinks& links) : loop_(loop), links_(links) {
  event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop_.Watch(event_.get(), EPOLLIN, [this](std::uint32_t) { OnHashed(); }).ok()) event_.Reset(-1);
  links_.On<wire::FetchProgram>(
      [this](NodeNumber from, const wire::FetchProgram& message, std::uint64_t call) { Serve(from, message, call); });
}

Programs::~Programs() {
  for (std::thread& thread : threads_) thread.join();
  if (event_.valid()) loop_.Unwatch(event_.get());
}

// ---- at home ----

void Programs::AddJob(const wire::JobFacts& facts, int executable) {
  auto local = std::make_unique<Local>();
  local->facts = facts;
  local->executable = Reopen(executable);
  local->file = FileName(executable);
  struct stat info{};
  if (fstat(executable, &info) == 0) local->facts.program_bytes = static_cast<std::uint64_t>(info.st_size);
  locals_[facts.job] = std::move(local);
}

void Programs::RemoveJob(const Id& job) {
  const auto it = locals_.find(job);
  if (it == locals_.end()) return;
  const std::unique_ptr<Local> local = std::move(it->second);
  locals_.erase(it);
  for (const OnFacts& done : local->waiting) done(Status(Code::kUnavailable, "the job has ended"));
}

base::Fd Programs::Executable(const Id& job) const {
  const auto it = locals_.find(job);
  return it == locals_.end() ? base::Fd() : Reopen(it->second->executable.get());
}

void Programs::Describe(const Id& job, bool same_machine, OnFacts done) {
  const auto it = locals_.find(job);
  if (it == locals_.end()) return done(Status(Code::kUnavailable, "the job has ended"));
  Local& local = *it->second;
  if (same_machine && local.facts.program_sha256.empty()) {
    const base::Fd named(open(local.facts.program.c_str(), O_PATH | O_CLOEXEC));
    if (named.valid() && FileName(named.get()) == local.file) {
      wire::JobFacts facts = local.facts;
      facts.file = local.file;
      return done(std::move(facts));
    }
  }
  if (const auto known = hashes_.find(local.file); known != hashes_.end()) local.facts.program_sha256 = known->second;
  if (!local.facts.program_sha256.empty()) return done(local.facts);
  if (!local.executable.valid()) return done(Status(Code::kIo, Cat("cannot read ", local.facts.program)));
  local.waiting.push_back(std::move(done));
  if (std::exchange(local.hashing, true)) return;
  HashInThread(Reopen(local.executable.get()), [this, job](Result<std::string> digest) {
    const auto at = locals_.find(job);
    if (at == locals_.end()) return;
    Local& hashed = *at->second;
    hashed.hashing = false;
    if (digest.ok()) {
      hashed.facts.program_sha256 = *digest;
      hashes_[hashed.file] = *digest;
    }
    const std::vector<OnFacts> waiting = std::exchange(hashed.waiting, {});
    const Result<wire::JobFacts> facts = digest.ok() ? Result<wire::JobFacts>(hashed.facts) : digest.status();
    for (const OnFacts& one : waiting) one(facts);
  });
}

void Programs::HashInThread(base::Fd file, std::function<void(Result<std::string>)> done) {
  threads_.emplace_back([this, file = std::move(file), done = std::move(done)]() mutable {
    Result<std::string> digest = HashOf(file.get());
    {
      const std::lock_guard lock(mutex_);
      hashed_.push_back(Hashed{std::move(done), std::move(digest)});
    }
    const std::uint64_t one = 1;
    if (write(event_.get(), &one, sizeof one) < 0) return;  // cannot be full
  });
}

void Programs::OnHashed() {
  std::uint64_t count = 0;
  if (read(event_.get(), &count, sizeof count) < 0) return;
  std::vector<Hashed> ready;
  {
    const std::lock_guard lock(mutex_);
    ready = std::exchange(hashed_, {});
  }
  for (Hashed& one : ready) one.done(std::move(one.digest));
}

void Programs::Serve(NodeNumber from, const wire::FetchProgram& message, std::uint64_t call) {
  const auto it = std::find_if(locals_.begin(), locals_.end(),
                               [&](const auto& entry) { return entry.second->facts.program_sha256 == message.sha256; });
  if (message.sha256.empty() || it == locals_.end()) {
    return links_.Fail(from, call, Status(Code::kNotFound, "no job here runs a program with this hash"));
  }
  std::string bytes(std::min(message.bytes, kPartBytes), '\0');
  ssize_t count = 0;
  do {
    count = pread(it->second->executable.get(), bytes.data(), bytes.size(), static_cast<off_t>(message.offset));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return links_.Fail(from, call, Failed("cannot read the program"));
  bytes.resize(static_cast<std::size_t>(count));
  links_.Answer(from, call, wire::ProgramPart{message.offset, std::move(bytes)});
}

// ---- elsewhere ----

void Programs::Get(const wire::JobFacts& facts, OnProgram done) {
  if (!facts.file.empty()) {
    base::Fd named(open(facts.program.c_str(), O_PATH | O_CLOEXEC));
    if (named.valid() && FileName(named.get()) == facts.file) return done(std::move(named));
    return done(Status(Code::kNotFound, Cat(facts.program, " is another file by now")));
  }
  const std::string& sha256 = facts.program_sha256;
  if (const auto it = cache_.find(sha256); it != cache_.end()) {
    it->second.used = ++uses_;
    return done(base::Fd(fcntl(it->second.file.get(), F_DUPFD_CLOEXEC, 3)));
  }
  if (sha256.size() != 64 || facts.program_bytes == 0 || facts.program_bytes > kMaxBytes) {
    return done(Status(Code::kInvalid, Cat("the program ", facts.program, " (", Bytes(facts.program_bytes),
                                           ") cannot be fetched from node ", facts.home)));
  }
  const auto [it, fresh] = fetches_.try_emplace(sha256);
  Fetch& fetch = it->second;
  fetch.waiting.push_back(std::move(done));
  if (!fresh) return;
  fetch.home = facts.home;
  fetch.bytes = facts.program_bytes;
  fetch.memory.Reset(memfd_create("manta-program", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fetch.memory.valid() || ftruncate(fetch.memory.get(), static_cast<off_t>(fetch.bytes)) != 0) {
    return Finish(sha256, Failed(Cat("no memory for the program of ", Bytes(fetch.bytes))));
  }
  AskMore(sha256);
}

void Programs::AskMore(const std::string& sha256) {
  for (;;) {
    const auto it = fetches_.find(sha256);
    if (it == fetches_.end()) return;
    Fetch& fetch = it->second;
    if (fetch.asked >= fetch.bytes || fetch.asked - fetch.got >= kPartsAhead * kPartBytes) return;
    const std::uint64_t offset = fetch.asked;
    fetch.asked += std::min<std::uint64_t>(kPartBytes, fetch.bytes - fetch.asked);
    links_.Call<wire::ProgramPart>(fetch.home, wire::FetchProgram{sha256, offset, kPartBytes},
                                   [this, sha256](const Result<wire::ProgramPart>& part) { OnPart(sha256, part); });
  }
}

void Programs::OnPart(const std::string& sha256, const Result<wire::ProgramPart>& part) {
  const auto it = fetches_.find(sha256);
  if (it == fetches_.end()) return;
  Fetch& fetch = it->second;
  if (!part.ok()) return Finish(sha256, part.status());
  const std::string& bytes = part.value().bytes;
  const std::uint64_t offset = part.value().offset;
  // Parts come as they were asked for.
  if (offset != fetch.got || bytes.size() != std::min<std::uint64_t>(kPartBytes, fetch.bytes - offset)) {
    return Finish(sha256, Status(Code::kCorrupt, Cat("node ", fetch.home, " sent ", bytes.size(), " bytes at ", offset,
                                                     " of a program of ", fetch.bytes)));
  }
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count =
        pwrite(fetch.memory.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Finish(sha256, Failed("no memory for the program"));
    done += static_cast<std::size_t>(count);
  }
  fetch.got += bytes.size();
  if (fetch.got == fetch.bytes) return Check(sha256);
  AskMore(sha256);
}

void Programs::Check(const std::string& sha256) {
  Fetch& fetch = fetches_[sha256];
  // What is being written cannot be executed: sealed, and opened again for reading only.
  fchmod(fetch.memory.get(), 0500);
  fcntl(fetch.memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  base::Fd readable = Reopen(fetch.memory.get());
  if (!readable.valid()) return Finish(sha256, Failed("cannot open the program that was fetched"));
  fetch.memory = std::move(readable);
  HashInThread(Reopen(fetch.memory.get()), [this, sha256](const Result<std::string>& digest) {
    if (!digest.ok()) return Finish(sha256, digest.status());
    if (digest.value() != sha256) {
      return Finish(sha256, Status(Code::kCorrupt, Cat("the program that was fetched has the hash ", digest.value(),
                                                       ", not ", sha256)));
    }
    Finish(sha256, {});
  });
}

void Programs::Finish(const std::string& sha256, const Status& status) {
  const auto it = fetches_.find(sha256);
  if (it == fetches_.end()) return;
  Fetch fetch = std::move(it->second);
  fetches_.erase(it);
  for (const OnProgram& done : fetch.waiting) {
    if (status.ok()) {
      done(base::Fd(fcntl(fetch.memory.get(), F_DUPFD_CLOEXEC, 3)));
    } else {
      done(status);
    }
  }
  if (!status.ok()) return;
  cache_[sha256] = Cached{std::move(fetch.memory), fetch.bytes, ++uses_};
  Trim();
}

void Programs::Trim() {
  std::uint64_t sum = 0;
  for (const auto& [sha256, cached] : cache_) sum += cached.bytes;
  while (sum > kCacheBytes && cache_.size() > 1) {
    const auto oldest = std::min_element(cache_.begin(), cache_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    sum -= oldest->second.bytes;
    cache_.erase(oldest);
  }
}

}  // namespace manta::node
