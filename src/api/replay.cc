// `manta replay`: runs recorded tasks again, alone, in this process, and compares what they give with what was
// recorded.
//
// The command line starts the user's program with MANTA_REPLAY (the job's folder) and MANTA_REPLAY_TASKS (ids, or
// "sample:N") in its environment. The start hook then runs ReplayMain instead of main. Statics have run; a private
// cluster is started for what the task calls itself.
//
// Inputs. Small ones stand in the record. Large ones, and those given by Ref, are looked for by their names among the
// recorded calls: a small result is taken from its record, and a large one made again first, its own inputs before it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "base/program.h"
#include "lineage/scan.h"
#include "manta/manta.h"
#include "owner/owner.h"
#include "worker/execution.h"
#include "worker/start_hook.h"

// Where `manta replay --gdb` stops: the next thing is the task.
extern "C" __attribute__((noinline)) void manta_replay_begin() { asm volatile(""); }

namespace manta {
namespace {

using lineage::Found;
using lineage::OutcomeKind;

class Replay {
 public:
  explicit Replay(std::string folder) : folder_(std::move(folder)) {}

  // How many did not give what was recorded; -1: it could not be found out.
  int Run(const std::string& which);

 private:
  Status Choose(const std::string& which);
  Status FindInputs();
  bool Make(owner::Owner& owner, const Found& call, bool shown);
  bool Compare(owner::Owner& owner, const Found& call, const std::string& label,
               std::span<internal::Entry* const> results, bool shown);
  // An input of this name that is in some call's record: then it is there afterwards.
  void Provide(owner::Owner& owner, const Id& value);

  std::string folder_;
  std::vector<Id> chosen_;
  std::unordered_map<Id, Found> calls_;                             // chosen, and what they need
  std::unordered_map<Id, std::pair<Id, std::uint32_t>> by_result_;  // a value's name: its call, and which return
  std::unordered_set<Id> durable_;                                  // values in the folder
  std::unordered_set<Id> there_;                                    // values
};

// All places in the bytes where an id may stand: a name of 128 bits is found there by accident never.
void AddWindows(std::span<const std::byte> bytes, std::unordered_set<Id>* out) {
  for (std::size_t at = 0; at + sizeof(Id) <= bytes.size(); ++at) {
    Id id;
    std::memcpy(&id, bytes.data() + at, sizeof id);
    if ((id.lo & 1) != 0 && id.hi != 0) out->insert(id);
  }
}

Status Replay::Choose(const std::string& which) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/objects", error)) {
    if (Id id; FromHex(entry.path().filename(), &id)) durable_.insert(id);
  }
  std::uint64_t sample = 0;
  std::unordered_set<Id> ids;
  if (which.rfind("sample:", 0) == 0) {
    sample = std::strtoull(which.c_str() + 7, nullptr, 10);
  } else {
    std::istringstream words(which);
    for (std::string word; std::getline(words, word, ',');) {
      Id id;
      if (!FromHex(word, &id)) return Status(Code::kInvalid, Cat("'", word, "' is no id of a task"));
      ids.insert(id);
    }
  }
  std::uint64_t every = 1;
  if (sample > 0) {
    const Result<lineage::Scan> all = lineage::ScanFolder(folder_, [](const lineage::TaskRecord&) { return false; });
    if (!all.ok()) return all.status();
    every = std::max<std::uint64_t>(all.value().totals.finished / sample, 1);
  }
  std::uint64_t seen = 0;
  Result<lineage::Scan> scan = lineage::ScanFolder(folder_, [&](const lineage::TaskRecord& task) {
    if (sample == 0) return ids.contains(task.id);
    return task.function->actor.empty() && task.whole && seen++ % every == 0;
  });
  if (!scan.ok()) return scan.status();
  for (Found& call : scan->found) {
    if (sample > 0 && (chosen_.size() >= sample || call.OutcomeOf(0) == nullptr)) continue;
    chosen_.push_back(call.id);
    calls_.emplace(call.id, std::move(call));
  }
  for (const Id& id : ids) {
    if (!calls_.contains(id)) return Status(Code::kNotFound, Cat("no task ", ToHex(id), " is recorded in ", folder_));
  }
  return {};
}

// Until no call is found that others need and that is not known.
Status Replay::FindInputs() {
  std::unordered_set<Id> asked;
  std::vector<const Found*> fresh;
  fresh.reserve(calls_.size());
  for (const auto& [id, call] : calls_) fresh.push_back(&call);
  while (!fresh.empty()) {
    std::unordered_set<Id> names;
    for (const Found* call : fresh) AddWindows(call->arguments, &names);
    std::erase_if(names, [&](const Id& id) { return !asked.insert(id).second; });
    if (names.empty()) break;
    Result<lineage::Scan> scan = lineage::ScanFolder(folder_, [&](const lineage::TaskRecord& task) {
      for (std::uint32_t i = 0; i < task.function->header.returns; ++i) {
        if (names.contains(ReturnId(task.id, i))) return true;
      }
      return false;
    });
    if (!scan.ok()) return scan.status();
    fresh.clear();
    for (Found& call : scan->found) {
      const Id id = call.id;
      for (std::uint32_t i = 0; i < call.function.header.returns; ++i) by_result_[ReturnId(id, i)] = {id, i};
      const auto [it, added] = calls_.emplace(id, std::move(call));
      if (added) fresh.push_back(&it->second);
    }
  }
  return {};
}

void Replay::Provide(owner::Owner& owner, const Id& value) {
  if (durable_.contains(value)) {
    if (there_.contains(value)) return;
    const Result<std::vector<std::byte>> bytes = owner::FindInFolder(folder_, value);
    if (!bytes.ok()) return;
    there_.insert(value);
    owner.Plant(value, bytes.value());
    // A function's code may name other functions.
    std::unordered_set<Id> names;
    AddWindows(bytes.value(), &names);
    for (const Id& name : names) {
      if (durable_.contains(name)) Provide(owner, name);
    }
    return;
  }
  const auto it = by_result_.find(value);
  if (it == by_result_.end() || !there_.insert(value).second) return;
  const Found& maker = calls_.at(it->second.first);
  const Found::Outcome* outcome = maker.OutcomeOf(it->second.second);
  if (outcome != nullptr && outcome->kind == OutcomeKind::kValue) {
    owner.Plant(value, outcome->value);
    return;
  }
  Make(owner, maker, false);
}

// False: it did not give what was recorded.
bool Replay::Make(owner::Owner& owner, const Found& call, bool shown) {
  const char* why = !call.function.actor.empty()          ? "it is a method of an actor, whose state is not recorded"
                    : !call.whole                         ? "its arguments were too large to be recorded"
                    : call.program != base::ProgramHash() ? "the program was built again since it was recorded"
                                                          : nullptr;
  if (why != nullptr) {
    std::fprintf(stderr, "manta replay: task %s cannot run again: %s\n", ToHex(call.id).c_str(), why);
    return false;
  }
  std::unordered_set<Id> names;
  AddWindows(call.arguments, &names);
  for (const Id& name : names) Provide(owner, name);
  for (const Id& input : lineage::InputsOf(call)) {
    if (there_.contains(input)) continue;
    std::fprintf(
        stderr,
        "manta replay: task %s cannot run again: its input %s was put (and not as durable), or made by an actor, and "
        "is not recorded\n",
        ToHex(call.id).c_str(), ToHex(input).c_str());
    return false;
  }
  std::vector<std::byte> spec = call.Spec();
  shm::SpecHeader header;
  std::memcpy(&header, spec.data(), sizeof header);
  const std::vector<internal::Entry*> results = owner.BeginReplay(&header);
  std::memcpy(spec.data(), &header, sizeof header);
  for (std::uint32_t i = 0; i < header.returns; ++i) there_.insert(ReturnId(call.id, i));
  worker::Execution execution(owner, nullptr, nullptr);
  if (shown) manta_replay_begin();
  execution.Run(spec.data(), spec.size());
  return Compare(owner, call, execution.label(), results, shown);
}

bool Replay::Compare(owner::Owner& owner, const Found& call, const std::string& label,
                     std::span<internal::Entry* const> results, bool shown) {
  bool same = true;
  for (std::uint32_t i = 0; i < results.size(); ++i) {
    const Found::Outcome* before = call.OutcomeOf(i);
    const internal::Entry* now = results[i];
    std::string what;
    std::string verdict;
    if (now->where == internal::Where::kFailure) {
      what = Cat("failed: ", now->failure->message.substr(0, now->failure->message.find('\n')));
      verdict = before == nullptr                                                            ? "it had not ended then"
                : before->kind == OutcomeKind::kFailed && before->code == now->failure->code ? "as recorded"
                                                                                             : "which it did not then";
      same &= before == nullptr || verdict == "as recorded";
    } else {
      KeepAlive keep;
      const Result<internal::View> view = owner.Look(results[i], &keep, nullptr);
      const std::span<const std::byte> bytes =
          view.ok() ? std::span(view.value().data, view.value().size) : std::span<const std::byte>();
      char digest[32];
      std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(lineage::DigestOf(bytes)));
      what = Cat(bytes.size(), " bytes, digest ", digest);
      bool equal = true;
      if (before == nullptr) {
        verdict = "it had not ended then";
      } else if (before->kind == OutcomeKind::kFailed) {
        equal = false;
        verdict = Cat("it failed then: ", before->message.substr(0, before->message.find('\n')));
      } else if (before->kind == OutcomeKind::kStored) {
        equal = before->size == bytes.size();
        verdict = equal ? "of the recorded size" : Cat("recorded: ", before->size, " bytes");
      } else {
        equal = std::equal(bytes.begin(), bytes.end(), before->value.begin(), before->value.end());
        verdict = equal ? "the same as recorded"
                        : Cat("DIFFERENT: recorded were ", before->value.size(),
                              " bytes; the task is not deterministic, or depends on what is not recorded");
      }
      same &= equal;
    }
    if (shown || !same) {
      std::printf("task %s (%s)%s: %s; %s\n", label.c_str(), ToHex(call.id).c_str(),
                  results.size() > 1 ? Cat(", return ", i).c_str() : "", what.c_str(), verdict.c_str());
    }
  }
  std::fflush(stdout);
  return same;
}

int Replay::Run(const std::string& which) {
  Status status = Choose(which);
  if (status.ok()) status = FindInputs();
  if (!status.ok()) {
    std::fprintf(stderr, "manta replay: %s\n", status.message().c_str());
    return -1;
  }
  Config config;
  config.address = "private";
  Init(config);
  int different = 0;
  {
    const owner::Visit visit;
    for (const Id& id : chosen_) {
      if (!Make(*visit.owner(), calls_.at(id), chosen_.size() == 1)) ++different;
    }
  }
  if (chosen_.size() != 1) {
    std::printf("%zu of %zu tasks gave the recorded result\n", chosen_.size() - static_cast<std::size_t>(different),
                chosen_.size());
    std::fflush(stdout);
  }
  Shutdown();
  return different;
}

int ReplayMain(const char* folder, const char* which) {
  try {
    return Replay(folder).Run(which) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "manta replay: %s\n", error.what());
    return 1;
  }
}

[[maybe_unused]] const bool g_registered = (worker::SetReplayMain(&ReplayMain), true);

}  // namespace
}  // namespace manta
