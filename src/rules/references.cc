#include "rules/references.h"

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
  if (held_by_[holder].insert(object).second) ++objects_[object].holders;
}

void References::Drop(const Id& object, const Holder& holder) {
  const auto it = held_by_.find(holder);
  if (it == held_by_.end() || it->second.erase(object) == 0) return;
  if (it->second.empty()) held_by_.erase(it);
  Release(object);
}

void References::SetContained(const Id& container, const std::vector<Id>& contained) {
  const Holder holder = Holder::Container(container);
  std::unordered_set<Id> before;
  if (const auto it = held_by_.find(holder); it != held_by_.end()) {
    before.swap(it->second);
    held_by_.erase(it);
  }
  // Hold the new before letting go of the old: what is in both was never without a holder.
  for (const Id& id : contained) Hold(id, holder);
  for (const Id& id : before) Release(id);
}

void References::ProcessDied(ProcessId process) {
  const auto node = held_by_.extract(Holder::Process(process));
  if (node.empty()) return;
  for (const Id& id : node.mapped()) Release(id);
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
    for (const Id& inner : node.mapped()) Release(inner);
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
  return it != held_by_.end() && it->second.contains(object);
}

}  // namespace manta::rules
