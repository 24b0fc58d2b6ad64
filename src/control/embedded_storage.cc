#include "control/embedded_storage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace manta::control {
namespace {

constexpr std::int64_t kCheckpointAgain = 500'000;  // microseconds, after one failed
constexpr std::size_t kManySegments = 4;            // left by earlier lives: then their log is not worth keeping
// A good disk has synced a small record before this thread and its client would have fallen asleep and woken up.
constexpr std::int64_t kSoonUs = 250;

std::size_t SizeOf(const Batch& batch) {
  std::size_t bytes = 96;
  for (const Write& write : batch.writes) bytes += 64 + write.key.size() + (write.value ? write.value->size() : 0);
  return bytes;
}

// The cells of one table from a key on, of two memory tables of which the first hides the second.
class Overlay {
 public:
  using Cells = std::map<MemoryTable::Key, Cell, MemoryTable::Less>;

  Overlay(Table table, std::string_view from, std::string_view to, const MemoryTable* upper, const MemoryTable* lower)
      : table_(table), to_(to) {
    const MemoryTable* sources[] = {upper, lower};
    for (std::size_t i = 0; i < 2; ++i) {
      if (sources[i] == nullptr) continue;
      at_[i] = sources[i]->cells.lower_bound(MemoryTable::KeyView(table, from));
      end_[i] = sources[i]->cells.end();
    }
  }
  [[nodiscard]] bool done() const { return !Valid(0) && !Valid(1); }
  [[nodiscard]] const std::string& key() const { return Top()->first.second; }
  [[nodiscard]] const Cell& cell() const { return Top()->second; }
  void Next() {
    const std::string current = key();
    for (std::size_t i = 0; i < 2; ++i) {
      if (Valid(i) && at_[i]->first.second == current) ++at_[i];
    }
  }

 private:
  [[nodiscard]] bool Valid(std::size_t i) const {
    return at_[i] != end_[i] && at_[i]->first.first == table_ && (to_.empty() || at_[i]->first.second < to_);
  }
  [[nodiscard]] Cells::const_iterator Top() const {
    if (!Valid(1)) return at_[0];
    if (!Valid(0)) return at_[1];
    return at_[1]->first.second < at_[0]->first.second ? at_[1] : at_[0];
  }

  Table table_;
  std::string_view to_;
  std::array<Cells::const_iterator, 2> at_{};
  std::array<Cells::const_iterator, 2> end_{};
};

Status MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return DiskError(Cat("cannot make folder ", folder), errno);
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0) return DiskError(Cat("cannot look at folder ", folder), errno);
  if (!S_ISDIR(info.st_mode)) return Status(Code::kInvalid, Cat(folder, " is not a folder"));
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return Status(Code::kInvalid, Cat("others may look into ", folder, ": run `chmod 700 ", folder,
                                      "` as its owner, or name another folder for the control store"));
  }
  return {};
}

}  // namespace

// All members of a chain write at the same time: those on one machine that look would take the cores from the others.
EmbeddedStorage::EmbeddedStorage(base::Loop& loop, EmbeddedOptions options)
    : loop_(loop),
      options_(std::move(options)),
      segments_(options_.folder),
      rhythm_(options_.keep_log_bytes > 0 ? 0 : kSoonUs) {}

Result<std::unique_ptr<EmbeddedStorage>> EmbeddedStorage::Open(base::Loop& loop, EmbeddedOptions options) {
  std::unique_ptr<EmbeddedStorage> storage(new EmbeddedStorage(loop, std::move(options)));
  if (Status status = MakeFolder(storage->options_.folder); !status.ok()) return status;
  if (Status status = storage->Lock(); !status.ok()) return status;
  if (Status status = storage->Recover(); !status.ok()) return status;
  Result<std::unique_ptr<LogWriter>> writer = LogWriter::Start(
      storage->options_.folder, storage->epoch_, storage->last_sequence_, storage->options_.segment_bytes);
  if (!writer.ok()) return writer.status();
  storage->writer_ = std::move(*writer);
  storage->segments_.Begin(storage->epoch_, storage->last_sequence_, 0);
  if (Status status =
          loop.Watch(storage->writer_->fd(), EPOLLIN, [raw = storage.get()](std::uint32_t) { raw->OnReady(); });
      !status.ok()) {
    return status;
  }
  if (storage->segments_.size() > kManySegments) storage->StartCheckpoint();
  storage->MaybeCheckpoint();
  return storage;
}

EmbeddedStorage::~EmbeddedStorage() {
  *alive_ = false;
  if (writer_ != nullptr) loop_.Unwatch(writer_->fd());
  if (again_ != 0) loop_.Cancel(again_);
  if (checkpoint_thread_.joinable()) checkpoint_thread_.join();
  writer_.reset();
}

Status EmbeddedStorage::Lock() {
  const std::string path = options_.folder + "/lock";
  lock_.Reset(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock_.valid()) return DiskError(Cat("cannot open ", path), errno);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> text{};
    const ssize_t size = pread(lock_.get(), text.data(), text.size() - 1, 0);
    const std::string pid =
        size > 0 ? Cat(" (pid ", std::string(text.data(), static_cast<std::size_t>(size)), ")") : "";
    return Status(Code::kInvalid, Cat("the control store in ", options_.folder, " is in use by another process", pid,
                                      "; stop that one first, or name another folder"));
  }
  const std::string pid = std::to_string(getpid());
  // For the message above only: that it cannot be written (a full disk) is no reason not to start.
  if (ftruncate(lock_.get(), 0) == 0) {
    [[maybe_unused]] const ssize_t ignored = pwrite(lock_.get(), pid.data(), pid.size(), 0);
  }
  return {};
}

Status EmbeddedStorage::Recover() {
  Status status;
  // Made by the first checkpoint: making it takes tens of milliseconds, which a new store does not need to wait for.
  if (access(TablesPath().c_str(), F_OK) == 0) {
    for (auto* place : {&checkpointer_, &reader_}) {
      Result<std::unique_ptr<SqliteTables>> tables = SqliteTables::Open(TablesPath());
      if (!tables.ok()) return tables.status();
      *place = std::move(*tables);
    }
    const Result<std::uint64_t> sequence = reader_->Sequence();
    if (!sequence.ok()) return sequence.status();
    checkpointed_ = last_sequence_ = sequence.value();
    active_->sequence = checkpointed_;
    status = reader_->Stamps([this](const Id& client, const Stamp& stamp) { Remember(client, stamp); });
    if (!status.ok()) return status;
  }

  const Result<std::vector<std::uint64_t>> numbers = ListSegments(options_.folder);
  if (!numbers.ok()) return numbers.status();
  if (numbers.value().empty() && checkpointed_ > 0) {
    return Status(Code::kCorrupt,
                  Cat("the log in ", options_.folder, " is gone, and with it what was acknowledged after ",
                      checkpointed_, "; put back the log-* files"));
  }
  for (const std::uint64_t number : numbers.value()) {
    if (status = Replay(number, checkpointed_); !status.ok()) return status;
  }
  next_sequence_ = last_sequence_ + 1;
  epoch_ = numbers.value().empty() ? 1 : numbers.value().back() + 1;
  return {};
}

Status EmbeddedStorage::Replay(std::uint64_t number, std::uint64_t checkpointed) {
  const std::string path = options_.folder + "/" + SegmentName(number);
  const Result<std::string> bytes = segments_.ReadAll(number);
  if (!bytes.ok()) return bytes.status();
  const std::span<const std::byte> view = std::as_bytes(std::span(bytes.value()));
  const Result<SegmentHeader> header = DecodeSegmentHeader(view, number);
  if (!header.ok()) {
    return Status(Code::kCorrupt, Cat(path, ": ", header.status().message(), "; restore the folder from a copy"));
  }
  if (header.value().durable_before > last_sequence_) {
    return Status(Code::kCorrupt,
                  Cat("the log before ", path, " is damaged: acknowledged batches ", last_sequence_ + 1, " to ",
                      header.value().durable_before, " are missing; restore the folder from a copy"));
  }
  segments_.Begin(number, header.value().durable_before, view.size());
  LogReader reader(view.subspan(sizeof(SegmentHeader)), number, sizeof(SegmentHeader));
  bool fresh = false;
  std::uint64_t at = reader.offset();
  while (std::optional<Batch> batch = reader.Next()) {
    segments_.Add(number, std::exchange(at, reader.offset()), 0, batch->sequence);
    if (batch->sequence <= checkpointed) continue;
    if (batch->sequence <= last_sequence_) {
      return Status(Code::kCorrupt, Cat(path, ": batch ", batch->sequence, " comes after ", last_sequence_));
    }
    fresh = true;
    last_sequence_ = batch->sequence;
    if (!batch->client.empty()) Remember(batch->client, Stamp{batch->client_sequence, batch->sequence});
    const std::size_t size = SizeOf(*batch);
    active_->Put(std::move(*batch), size);
  }
  if (fresh) {
    // Its last records may have been written, and not synced, when the process was killed: now they will be shown.
    const base::Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file.valid() || fdatasync(file.get()) != 0) return DiskError(Cat("cannot sync ", path), errno);
  }
  return {};
}

void EmbeddedStorage::Apply(Batch batch, OnApplied done) {
  if (batch.sequence == 0) batch.sequence = next_sequence_;
  if (batch.sequence < next_sequence_) {
    done(Status(Code::kInvalid, Cat("batch ", batch.sequence, " comes after ", next_sequence_ - 1)));
    return;
  }
  next_sequence_ = batch.sequence + 1;
  if (batch.epoch == 0) batch.epoch = epoch_;
  auto pending = std::make_unique<Pending>();
  pending->bytes = SizeOf(batch);
  pending->batch = std::move(batch);
  pending->done = std::move(done);
  const bool full = HeldBytes() + pending->bytes > options_.memory_bytes;
  if (full && !checkpoint_trouble_.ok()) {
    pending->done(checkpoint_trouble_);
    return;
  }
  if (full || !waiting_.empty()) {
    waiting_.push_back(std::move(pending));
    MaybeCheckpoint();
    return;
  }
  Log(std::move(pending));
}

void EmbeddedStorage::Log(std::unique_ptr<Pending> pending) {
  pending->asked_us = base::NowMicros();
  const std::int64_t look_us = rhythm_.Asked(pending->asked_us, in_log_bytes_ == 0);
  in_log_bytes_ += pending->bytes;
  writer_->Add(std::move(pending));
  if (look_us > 0) loop_.Expect(look_us);
}

std::uint64_t EmbeddedStorage::HeldBytes() const {
  return active_->bytes + in_log_bytes_ + (frozen_ != nullptr ? frozen_->bytes : 0);
}

void EmbeddedStorage::Release() {
  const std::shared_ptr<bool> alive = alive_;
  if (frozen_ != nullptr && !checkpoint_trouble_.ok()) {
    std::deque<std::unique_ptr<Pending>> refused = std::exchange(waiting_, {});
    for (const auto& pending : refused) {
      pending->done(checkpoint_trouble_);
      if (!*alive) return;
    }
    return;
  }
  // One that is larger than all the memory goes when it is alone.
  while (!waiting_.empty() && (HeldBytes() == 0 || HeldBytes() + waiting_.front()->bytes <= options_.memory_bytes)) {
    Log(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void EmbeddedStorage::OnReady() {
  const std::shared_ptr<bool> alive = alive_;
  std::vector<std::unique_ptr<Pending>> finished = writer_->Take();
  // First all of them into the tables, then the callbacks: whoever is told may read at once.
  for (const auto& pending : finished) {
    in_log_bytes_ -= pending->bytes;
    if (!pending->status.ok()) continue;
    Batch& batch = pending->batch;
    last_sequence_ = batch.sequence;
    segments_.Add(pending->segment, pending->offset, pending->bytes, batch.sequence);
    if (!batch.client.empty()) Remember(batch.client, Stamp{batch.client_sequence, batch.sequence});
    active_->Put(std::move(batch), pending->bytes);
  }
  if (!finished.empty() && in_log_bytes_ == 0) {
    loop_.Expect(rhythm_.Answered(base::NowMicros(), finished.back()->asked_us));
  }
  for (const auto& pending : finished) {
    if (pending->status.ok()) {
      pending->done(pending->batch.sequence);
    } else {
      pending->done(pending->status);
    }
    if (!*alive) return;
  }
  FinishCheckpoint();
  MaybeCheckpoint();
  Release();
}

void EmbeddedStorage::Remember(const Id& client, const Stamp& stamp) {
  std::vector<Stamp>& stamps = clients_[client];
  const std::size_t slot = stamp.client_sequence % wire::kControlWindow;
  if (stamps.size() <= slot) stamps.resize(slot + 1);
  stamps[slot] = stamp;
}

std::uint64_t EmbeddedStorage::Applied(const Id& client, std::uint64_t client_sequence) const {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return 0;
  const std::size_t slot = client_sequence % wire::kControlWindow;
  if (slot >= it->second.size() || it->second[slot].client_sequence != client_sequence) return 0;
  return it->second[slot].sequence;
}

void EmbeddedStorage::EachStamp(const OnStamp& take) const {
  for (const auto& [client, stamps] : clients_) {
    for (const Stamp& stamp : stamps) {
      if (stamp.sequence != 0) take(client, stamp.client_sequence, stamp.sequence);
    }
  }
}

void EmbeddedStorage::Forget(const Id& client) {
  if (clients_.erase(client) == 0) return;
  active_->stamps.erase(active_->stamps.lower_bound({client, 0}),
                        active_->stamps.upper_bound({client, ~std::uint32_t{0}}));
  active_->forgotten.insert(client);
}

std::vector<Id> EmbeddedStorage::Clients() const {
  std::vector<Id> clients;
  clients.reserve(clients_.size());
  for (const auto& [client, stamps] : clients_) clients.push_back(client);
  return clients;
}

void EmbeddedStorage::Get(Table table, std::string key, OnValue done) {
  for (const MemoryTable* memory : {static_cast<const MemoryTable*>(active_.get()), frozen_.get()}) {
    if (memory == nullptr) continue;
    const auto it = memory->cells.find(MemoryTable::KeyView(table, key));
    if (it == memory->cells.end()) continue;
    if (!it->second.value) {
      done(std::optional<Entry>());
    } else {
      done(std::optional<Entry>(Entry{std::move(key), it->second.version, *it->second.value}));
    }
    return;
  }
  if (reader_ == nullptr) return done(std::optional<Entry>());
  done(reader_->Get(table, key));
}

void EmbeddedStorage::Scan(Table table, std::string prefix, std::string after, std::size_t limit, OnPage done) {
  if (limit == 0 || limit > kPageEntries) limit = kPageEntries;
  // The smallest key that is greater than `after` is `after` with a zero byte.
  const std::string from = after.empty() || after < prefix ? prefix : after + '\0';
  const std::string to = AfterPrefix(prefix);
  Page page;
  std::size_t bytes = 0;
  const auto take = [&](std::string_view key, std::uint64_t version, const std::string& value) {
    if (page.entries.size() == limit || bytes >= kPageBytes) {
      page.more = true;
      return false;
    }
    bytes += key.size() + value.size();
    page.entries.push_back(Entry{std::string(key), version, value});
    return true;
  };
  Overlay overlay(table, from, to, active_.get(), frozen_.get());
  // Everything in memory with a smaller key.
  const auto take_memory = [&](const std::string* before) {
    while (!overlay.done() && (before == nullptr || overlay.key() < *before)) {
      if (overlay.cell().value && !take(overlay.key(), overlay.cell().version, *overlay.cell().value)) return false;
      overlay.Next();
    }
    return true;
  };
  const auto take_stored = [&](const Entry& entry) {
    if (!take_memory(&entry.key)) return false;
    if (!overlay.done() && overlay.key() == entry.key) return true;  // newer in memory, comes with the next
    return take(entry.key, entry.version, entry.value);
  };
  const Status status = reader_ == nullptr ? Status() : reader_->Range(table, from, to, take_stored);
  if (!status.ok()) {
    done(status);
    return;
  }
  if (!page.more) take_memory(nullptr);
  done(std::move(page));
}

void EmbeddedStorage::EntriesAfter(std::uint64_t sequence, std::size_t limit, OnBatches done) {
  done(segments_.After(sequence, limit));
}

void EmbeddedStorage::MaybeCheckpoint() {
  if (frozen_ == nullptr &&
      (active_->bytes >= options_.checkpoint_bytes || (!waiting_.empty() && active_->bytes > 0))) {
    StartCheckpoint();
  }
}

void EmbeddedStorage::StartCheckpoint() {
  if (frozen_ == nullptr) {
    frozen_ = active_;
    active_ = std::make_shared<MemoryTable>();
    active_->sequence = frozen_->sequence;
  }
  checkpoint_thread_ = std::thread([this, memory = frozen_, first = reader_ == nullptr] {
    const auto open = [this](std::unique_ptr<SqliteTables>& place) {
      if (place != nullptr) return Status();
      Result<std::unique_ptr<SqliteTables>> tables = SqliteTables::Open(TablesPath());
      if (tables.ok()) place = std::move(*tables);
      return tables.status();
    };
    Status status = open(checkpointer_);
    if (status.ok()) status = checkpointer_->Checkpoint(*memory);
    if (status.ok() && first) status = open(next_reader_);  // not by the loop, which clients wait for
    {
      const std::lock_guard lock(checkpoint_mutex_);
      checkpoint_result_ = std::move(status);
    }
    writer_->Wake();
  });
}

void EmbeddedStorage::FinishCheckpoint() {
  std::optional<Status> result;
  {
    const std::lock_guard lock(checkpoint_mutex_);
    result = std::exchange(checkpoint_result_, {});
  }
  if (!result) return;
  checkpoint_thread_.join();
  checkpoint_trouble_ = *result;
  if (reader_ == nullptr) reader_ = std::move(next_reader_);
  if (!checkpoint_trouble_.ok()) {
    // Still in the log and in memory: nothing is lost, and there may be room later.
    again_ = loop_.After(kCheckpointAgain, [this] {
      again_ = 0;
      StartCheckpoint();
    });
    return;
  }
  checkpointed_ = frozen_->sequence;
  frozen_.reset();
  ++checkpoints_;
  segments_.Drop(checkpointed_, options_.keep_log_bytes);
}

}  // namespace manta::control
