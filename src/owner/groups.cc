// Placement groups and nodes, as processes ask for them.
#include "base/clock.h"
#include "owner/owner.h"

namespace manta::owner {

Result<GroupFacts> Owner::CreateGroup(GroupFacts facts) {
  facts.group = NextId();
  if (facts.space.empty()) facts.space = setup_.space;
  Result<wire::GroupMade> made = link().Call<wire::GroupMade>(wire::CreateGroup{std::move(facts)});
  if (!made.ok()) return made.status();
  return std::move(made->facts);
}

Status Owner::RemoveGroup(const Id& group) { return link().Call<wire::Done>(wire::RemoveGroup{group}).status(); }

Result<GroupFacts> Owner::FindGroup(const Id& group) {
  Result<wire::GroupMade> found = link().Call<wire::GroupMade>(wire::FindGroup{group, {}, {}});
  if (!found.ok()) return found.status();
  return std::move(found->facts);
}

Result<GroupFacts> Owner::FindGroup(const std::string& name, const std::string& space) {
  Result<wire::GroupMade> found =
      link().Call<wire::GroupMade>(wire::FindGroup{{}, name, space.empty() ? setup_.space : space});
  if (!found.ok()) return found.status();
  return std::move(found->facts);
}

Result<std::vector<GroupFacts>> Owner::ListGroups() {
  Result<wire::GroupList> list = link().Call<wire::GroupList>(wire::ListGroups{});
  if (!list.ok()) return list.status();
  return std::move(list->groups);
}

Result<std::vector<wire::NodeList::Node>> Owner::ListNodes(bool all) {
  Result<wire::NodeList> list = link().Call<wire::NodeList>(wire::ListNodes{all});
  if (!list.ok()) return list.status();
  return std::move(list->nodes);
}

Result<bool> Owner::AwaitGroup(const Id& group, std::int64_t timeout_us) {
  std::shared_ptr<WatchedGroup> watched;
  bool fresh = false;
  {
    const Lock lock(mutex_);
    std::shared_ptr<WatchedGroup>& known = watched_groups_[group];
    fresh = known == nullptr;
    if (fresh) known = std::make_shared<WatchedGroup>();
    watched = known;
  }
  if (fresh) {
    if (Status s = link().Send(wire::WatchGroup{group}); !s.ok()) return s;
  }
  const auto done = [&] {
    return watched->state.load(std::memory_order_acquire) != GroupState::kWaiting || link().lost();
  };
  const std::int64_t deadline = timeout_us < 0 ? -1 : base::NowMicros() + timeout_us;
  if (!done()) WaitUntil(done, deadline, {});
  const Lock lock(mutex_);
  if (!lost_.ok()) return Status(lost_.code, lost_.message);
  const GroupState state = watched->state.load(std::memory_order_acquire);
  if (state == GroupState::kRemoved) return Status(Code::kNotFound, watched->why);
  return state == GroupState::kReady;
}

void Owner::OnGroupChanged(const wire::GroupChanged& message) {
  const auto it = watched_groups_.find(message.facts.group);
  if (it == watched_groups_.end()) return;
  if (it->second->state.load(std::memory_order_relaxed) == GroupState::kRemoved) return;
  it->second->why = message.facts.why;
  it->second->state.store(message.facts.state, std::memory_order_release);
}

}  // namespace manta::owner
