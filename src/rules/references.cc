#include "rules/references.h"

#include <algorithm>

namespace manta::rules {

void References::Suspect(const Id& id, Object* object) {
  if (object->suspect) return;
  object->suspect = true;
  suspects_.push_back(id);
}

void References::Release(const Id& object) {
  const auto it = objects_.find(object);
  if (--it->second.holders == 0) Suspect(object, &it->second);
}

void References::Hold(const Id& object, const Holder& holder) {
  if (holder.process == kNoProcess) {
    if (holder.container == object) return;  // would never end
    // Known before it may hold: otherwise nobody would ever take it, nor what it holds.
    const auto [container, fresh] = objects_.try_emplace(holder.container);
    if (fresh) Suspect(holder.container, &container->second);
  }
  Object& known = objects_[object];
  const auto held = held_by_.try_emplace(holder).first;
  std::int64_t& count = held->second[object];
  if (holder.process == kNoProcess && count > 0) return;
  if (++count == 1) ++known.holders;
  if (count == 0) Forget(held, object);
  if (known.holders == 0) Suspect(object, &known);  // its Drop came first, and nobody else holds it
}

void References::Drop(const Id& object, const Holder& holder, std::uint32_t count) {
  const bool process = holder.process != kNoProcess;
  const auto held = process ? held_by_.try_emplace(holder).first : held_by_.find(holder);
  if (held == held_by_.end() || (!process && !held->second.contains(object))) return;
  std::int64_t& now = held->second[object];
  const std::int64_t before = now;
  now = process ? before - count : 0;
  const bool released = before > 0 && now <= 0;
  if (now == 0) Forget(held, object);
  if (released) Release(object);
}

void References::Forget(HeldBy::iterator held, const Id& object) {
  held->second.erase(object);
  if (held->second.empty()) held_by_.erase(held);
}

void References::SetContained(const Id& container, const std::vector<Id>& contained) {
  const Holder holder = Holder::Container(container);
  Counts before;
  if (const auto it = held_by_.find(holder); it != held_by_.end()) {
    before.swap(it->second);
    held_by_.erase(it);
  }
  // Hold the new before letting go of the old: what is in both was never without a holder.
  for (const Id& id : contained) Hold(id, holder);
  for (const auto& [id, count] : before) Release(id);
}

void References::ProcessDied(ProcessId process) {
  const auto node = held_by_.extract(Holder::Process(process));
  if (node.empty()) return;
  for (const auto& [id, count] : node.mapped()) {
    if (count > 0) Release(id);
  }
}

std::vector<Id> References::TakeUnheld() {
  std::vector<Id> taken;
  // Grows while it is walked: what a container lets go becomes suspect in turn. By index, and by copy, for that.
  for (std::size_t i = 0; i < suspects_.size(); ++i) {
    const Id id = suspects_[i];
    const auto it = objects_.find(id);
    it->second.suspect = false;
    if (it->second.holders > 0) continue;  // rescued
    objects_.erase(it);
    taken.push_back(id);
    const auto node = held_by_.extract(Holder::Container(id));
    if (node.empty()) continue;
    for (const auto& [inner, count] : node.mapped()) Release(inner);
  }
  suspects_.clear();
  return taken;
}

std::size_t References::Holders(const Id& object) const {
  const auto it = objects_.find(object);
  return it == objects_.end() ? 0 : it->second.holders;
}

bool References::Holds(const Id& object, const Holder& holder) const {
  const auto it = held_by_.find(holder);
  if (it == held_by_.end()) return false;
  const auto count = it->second.find(object);
  return count != it->second.end() && count->second > 0;
}

bool References::HoldsAny(const Holder& holder) const {
  const auto it = held_by_.find(holder);
  return it != held_by_.end() &&
         std::any_of(it->second.begin(), it->second.end(), [](const auto& entry) { return entry.second > 0; });
}

std::vector<ProcessId> References::ProcessesThatHold(const Id& object) const {
  std::vector<ProcessId> processes;
  for (const auto& [holder, counts] : held_by_) {
    const auto count = counts.find(object);
    if (holder.process != kNoProcess && count != counts.end() && count->second > 0) processes.push_back(holder.process);
  }
  std::sort(processes.begin(), processes.end());
  return processes;
}

}  // namespace manta::rules
