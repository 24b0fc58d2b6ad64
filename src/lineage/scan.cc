#include "lineage/scan.h"

#include <cstring>
#include <unordered_map>

#include "lineage/folder.h"

namespace manta::lineage {
namespace {

class Collector final : public BlockSink {
 public:
  Collector(const std::function<bool(const TaskRecord&)>& wanted, Scan* scan) : wanted_(wanted), scan_(scan) {}

  void NewFile() { streams_.clear(); }
  FileHeader file;
  void OnBlock(ProcessId owner) override {
    const auto [it, fresh] = streams_.try_emplace(owner);
    stream_ = &it->second;
    if (fresh) ++scan_->totals.streams;
  }
  void OnTask(const TaskRecord& task) override {
    ++scan_->totals.calls;
    if (!wanted_(task)) return;
    const auto [it, fresh] = by_id_.try_emplace(task.id, scan_->found.size());
    if (fresh) {
      Found found;
      found.id = task.id;
      found.program = file.program;
      found.origin = task.origin;
      found.function = *task.function;
      found.arguments.assign(task.arguments.begin(), task.arguments.end());
      found.whole = task.whole;
      scan_->found.push_back(std::move(found));
    }
    stream_->wanted[task.sequence] = it->second;
  }
  void OnOutcome(const OutcomeRecord& outcome) override {
    if (outcome.index == 0 && outcome.sequence < kMostSequence) {
      std::vector<bool>& finished = stream_->finished;
      if (finished.size() <= outcome.sequence) finished.resize(outcome.sequence + 1 + outcome.sequence / 2);
      if (!finished[outcome.sequence]) {
        finished[outcome.sequence] = true;
        ++scan_->totals.finished;
        if (outcome.kind == OutcomeKind::kFailed) ++scan_->totals.failed;
      }
    }
    const auto it = stream_->wanted.find(outcome.sequence);
    if (it == stream_->wanted.end()) return;
    Found& found = scan_->found[it->second];
    if (found.OutcomeOf(outcome.index) != nullptr) return;
    Found::Outcome kept;
    kept.index = outcome.index;
    kept.kind = outcome.kind;
    kept.value.assign(outcome.value.begin(), outcome.value.end());
    kept.size = outcome.size;
    kept.code = outcome.code;
    kept.message = outcome.message;
    found.outcomes.push_back(std::move(kept));
  }

 private:
  static constexpr std::uint64_t kMostSequence = 1ULL << 33;  // the bytes are checked, but their writer is not
  struct Stream {
    std::unordered_map<std::uint64_t, std::size_t> wanted;  // by sequence: in Scan::found
    std::vector<bool> finished;
  };
  const std::function<bool(const TaskRecord&)>& wanted_;
  Scan* scan_;
  std::unordered_map<ProcessId, Stream> streams_;
  Stream* stream_ = nullptr;
  std::unordered_map<Id, std::size_t> by_id_;
};

}  // namespace

const Found::Outcome* Found::OutcomeOf(std::uint32_t index) const {
  for (const Outcome& outcome : outcomes) {
    if (outcome.index == index) return &outcome;
  }
  return nullptr;
}

std::vector<std::byte> Found::Spec() const {
  shm::SpecHeader header = function.header;
  header.id = id;
  header.name_bytes = static_cast<std::uint16_t>(function.name.size());
  const std::uint64_t name = shm::Padded(function.name.size());
  header.bytes = static_cast<std::uint32_t>(sizeof header + name + shm::Padded(arguments.size()));
  std::vector<std::byte> spec(header.bytes);
  std::memcpy(spec.data(), &header, sizeof header);
  std::memcpy(spec.data() + sizeof header, function.name.data(), function.name.size());
  if (!arguments.empty()) std::memcpy(spec.data() + sizeof header + name, arguments.data(), arguments.size());
  return spec;
}

std::vector<Id> InputsOf(const Found& call) {
  std::vector<Id> ids;
  const std::vector<std::byte> spec = call.Spec();
  Result<shm::SpecReader> reader = shm::SpecReader::Open(spec.data(), spec.size());
  while (reader.ok()) {
    const Result<shm::SpecReader::Item> item = reader->Next();
    if (!item.ok()) break;
    if (item.value().kind != shm::ItemKind::kStored) continue;
    shm::StoredItem stored;
    std::memcpy(&stored, item.value().data, sizeof stored);
    ids.push_back(stored.object);
  }
  return ids;
}

Result<Scan> ScanFolder(const std::string& folder, const std::function<bool(const TaskRecord&)>& wanted) {
  const std::vector<std::string> files = LineageFiles(folder);
  if (files.empty()) return Status(Code::kNotFound, Cat("there is no lineage in ", folder));
  Scan scan;
  Collector collector(wanted, &scan);
  for (const std::string& path : files) {
    collector.NewFile();
    const Result<FileSummary> read = ReadFile(path, collector, &collector.file);
    ++scan.totals.files;
    if (!read.ok()) {
      if (read.status().code() != Code::kCorrupt) return read.status();
      scan.totals.damages.push_back({path, 0, 0});  // none of it can be read
      continue;
    }
    scan.totals.bytes += read.value().bytes;
    scan.totals.torn += read.value().torn;
    scan.totals.lost_pieces += read.value().lost_pieces;
    scan.totals.damages.insert(scan.totals.damages.end(), read.value().damages.begin(), read.value().damages.end());
  }
  return scan;
}

}  // namespace manta::lineage
