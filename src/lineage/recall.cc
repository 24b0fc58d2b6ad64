#include "lineage/recall.h"

#include <cstring>
#include <map>

#include "lineage/file.h"
#include "lineage/folder.h"
#include "lineage/record.h"

namespace manta::lineage {
namespace {

struct Pending {
  Id id;
  Recall::Call call;
  std::map<std::uint32_t, std::vector<std::byte>> values;
};

class Gatherer final : public BlockSink {
 public:
  Gatherer(const Id& job, std::unordered_map<Id, Recall::Call>* calls, std::vector<std::byte>* values)
      : job_(job), calls_(calls), values_(values) {}

  void OnBlock(ProcessId owner) override {
    owner_ = owner;
    stream_ = &streams_[owner];
  }
  void OnTask(const TaskRecord& task) override {
    if (task.origin.parent != job_ || !task.function->actor.empty()) return;
    Pending pending;
    pending.id = task.id;
    pending.call.code = Recall::CodeOf(task.function->header);
    pending.call.arguments = task.whole ? DigestOf(task.arguments) : 0;
    pending.call.owner = owner_;
    pending.call.returns = task.function->header.returns;
    (*stream_)[task.sequence] = std::move(pending);
  }
  void OnOutcome(const OutcomeRecord& outcome) override {
    const auto it = stream_->find(outcome.sequence);
    if (it == stream_->end()) return;
    if (outcome.kind != OutcomeKind::kValue) {
      stream_->erase(it);
      return;
    }
    Pending& pending = it->second;
    pending.values[outcome.index].assign(outcome.value.begin(), outcome.value.end());
    if (pending.values.size() < pending.call.returns) return;
    pending.call.values = values_->size();
    for (const auto& [index, value] : pending.values) {
      const std::uint64_t size = value.size();
      const auto* bytes = reinterpret_cast<const std::byte*>(&size);
      values_->insert(values_->end(), bytes, bytes + sizeof size);
      values_->insert(values_->end(), value.begin(), value.end());
    }
    calls_->try_emplace(pending.id, pending.call);
    stream_->erase(it);
  }

 private:
  const Id job_;
  std::unordered_map<Id, Recall::Call>* calls_;
  std::vector<std::byte>* values_;
  std::unordered_map<ProcessId, std::unordered_map<std::uint64_t, Pending>> streams_;
  ProcessId owner_ = kNoProcess;
  std::unordered_map<std::uint64_t, Pending>* stream_ = nullptr;
};

}  // namespace

std::uint64_t Recall::CodeOf(const shm::SpecHeader& header) {
  const std::uint64_t hash = Mix(header.target ^ (static_cast<std::uint64_t>(header.trampoline) << 32)) ^
                             Mix((static_cast<std::uint64_t>(header.module) << 32) ^ header.target_module) ^
                             header.returns;
  return hash | 1;
}

Result<std::unique_ptr<Recall>> Recall::Load(const std::string& folder, const Id& job, std::uint64_t program) {
  auto recall = std::make_unique<Recall>();
  for (const std::string& path : LineageFiles(folder)) {
    std::unordered_map<Id, Call> calls;
    Gatherer gatherer(job, &calls, &recall->values_);
    const Result<FileSummary> read = ReadFile(path, gatherer);
    // What is damaged is not remembered, and runs again.
    if (!read.ok() && read.status().code() != Code::kCorrupt) return read.status();
    if (!read.ok()) continue;
    for (auto& [id, call] : calls) {
      if (read.value().program != program) call.code = 0;
      recall->calls_.try_emplace(id, call);
    }
  }
  return recall;
}

bool Recall::SameArguments(const Call& call, std::span<const std::byte> arguments, ProcessId self) {
  if (call.arguments == DigestOf(arguments)) return true;
  if (call.owner == self) return false;
  // A Ref is the id of its object, which no small numbers look like, and then its owner.
  struct Name {
    std::uint64_t id[2];
    ProcessId owner;
  };
  std::vector<std::byte> then(arguments.begin(), arguments.end());
  for (std::size_t at = 0; at + sizeof(Name) <= then.size(); ++at) {
    Name name;
    std::memcpy(&name, then.data() + at, sizeof name);
    if (name.owner != self || name.id[0] >> 32 == 0 || name.id[1] >> 32 == 0) continue;
    name.owner = call.owner;
    std::memcpy(then.data() + at, &name, sizeof name);
    at += sizeof name - 1;
  }
  return call.arguments == DigestOf(then);
}

std::vector<std::span<const std::byte>> Recall::ValuesOf(const Call& call) const {
  std::vector<std::span<const std::byte>> values;
  std::uint64_t at = call.values;
  for (std::uint32_t i = 0; i < call.returns; ++i) {
    std::uint64_t size = 0;
    std::memcpy(&size, values_.data() + at, sizeof size);
    values.emplace_back(values_.data() + at + sizeof size, size);
    at += sizeof size + size;
  }
  return values;
}

}  // namespace manta::lineage
