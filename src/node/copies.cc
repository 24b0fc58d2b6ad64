#include "node/copies.h"

#include <utility>
#include <variant>

namespace manta::node {

void Copies::Do(const rules::BroadcastActions& actions) {
  for (const rules::BroadcastAction& action : actions) {
    std::visit(
        [&](const auto& order) {
          using Order = std::decay_t<decltype(order)>;
          const auto tell = [&](const auto& message, const auto& here) {
            if (order.to == nodes_.self()) {
              here(message);
            } else {
              nodes_.Send(order.to, message);
            }
          };
          if constexpr (std::is_same_v<Order, rules::FetchFrom>) {
            tell(wire::FarFetchFrom{order.object, order.from, order.transfer}, here_.fetch_from);
          } else if constexpr (std::is_same_v<Order, rules::StopFetch>) {
            tell(wire::FarStopFetch{order.object, order.transfer}, here_.stop_fetch);
          } else {
            tell(wire::FarCopyLost{order.object}, here_.copy_lost);
          }
        },
        action);
  }
}

void Copies::Want(NodeNumber from, const wire::FarWant& message) {
  rules::BroadcastActions actions;
  const NodeNumber made = message.place.node;
  down_.erase(from);
  if (made == nodes_.self() || (nodes_.Knows(made) && !down_.contains(made))) {
    const auto [it, fresh] = known_.try_emplace(message.object, Known{message.place, message.owner});
    if (fresh) by_owner_[message.owner].insert(message.object);
    const bool moved = !fresh && it->second.place.node != made;  // it was lost and made again
    if (moved) it->second.place = message.place;
    if (fresh || moved) plan_.Has(message.object, made, &actions);
  }
  // Who asks has none, whatever is believed here.
  if (from != made) plan_.Dropped(message.object, from, &actions);
  plan_.Want(message.object, from, &actions);
  if (plan_.Find(message.object) == nullptr) Forget(message.object);  // nobody has it; who asks again is tried again
  Do(actions);
}

void Copies::Forgo(NodeNumber from, const Id& object) {
  rules::BroadcastActions actions;
  plan_.Forgo(object, from, &actions);
  Do(actions);
}

void Copies::Fetched(NodeNumber from, const wire::FarFetched& message) {
  rules::BroadcastActions actions;
  plan_.Done(message.object, message.transfer, &actions);
  const rules::Broadcast::Object* object = plan_.Find(message.object);
  if (object == nullptr) {
    // Freed meanwhile: nobody would ever free this copy.
    std::unordered_map<NodeNumber, wire::FarFree> orders;
    orders[from] = wire::FarFree{{message.object}, {Place{}}};
    Send(orders);
  } else if (!object->holders.contains(from)) {
    plan_.Has(message.object, from, &actions);  // by a transfer that was called off too late
  }
  Do(actions);
}

void Copies::Failed(NodeNumber from, const wire::FarFetchFailed& message) {
  static_cast<void>(from);
  rules::BroadcastActions actions;
  const rules::Broadcast::Object* object = plan_.Find(message.object);
  if (message.gone && object != nullptr && object->holders.contains(message.from)) {
    plan_.Dropped(message.object, message.from, &actions);
  } else {
    plan_.Failed(message.object, message.transfer, &actions);
  }
  if (plan_.Find(message.object) == nullptr) Forget(message.object);
  Do(actions);
}

void Copies::Dropped(NodeNumber from, const std::vector<Id>& objects) {
  rules::BroadcastActions actions;
  for (const Id& id : objects) {
    const auto known = known_.find(id);
    if (known != known_.end() && known->second.place.node == from) continue;  // that is the object itself
    plan_.Dropped(id, from, &actions);
    if (plan_.Find(id) == nullptr) Forget(id);
  }
  Do(actions);
}

void Copies::Forget(const Id& object) {
  const auto node = known_.extract(object);
  if (node.empty()) return;
  const auto owned = by_owner_.find(node.mapped().owner);
  if (owned == by_owner_.end()) return;
  owned->second.erase(object);
  if (owned->second.empty()) by_owner_.erase(owned);
}

void Copies::FreeCopies(const Id& object, NodeNumber made, std::unordered_map<NodeNumber, wire::FarFree>* orders) {
  const rules::Broadcast::Object* plan = plan_.Find(object);
  if (plan == nullptr) return;
  for (const NodeNumber holder : plan->holders) {
    if (holder == made) continue;
    (*orders)[holder].objects.push_back(object);
    (*orders)[holder].places.emplace_back();
  }
}

void Copies::Send(const std::unordered_map<NodeNumber, wire::FarFree>& orders) {
  for (const auto& [node, order] : orders) {
    if (node == nodes_.self()) {
      here_.free(order.objects, order.places);
    } else if (nodes_.Knows(node)) {
      nodes_.Send(node, order);
    }
  }
}

void Copies::Free(const std::vector<Id>& objects, const std::vector<Place>& places) {
  std::unordered_map<NodeNumber, wire::FarFree> orders;
  rules::BroadcastActions actions;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    Place place = i < places.size() ? places[i] : Place{};
    const auto known = known_.find(objects[i]);
    if (known != known_.end() && place.nowhere() && place.node == 0) place = known->second.place;
    // A place that is nowhere may still say on which node to look.
    const NodeNumber made = place.nowhere() && place.node == 0 ? nodes_.self() : place.node;
    orders[made].objects.push_back(objects[i]);
    orders[made].places.push_back(place);
    if (known == known_.end()) continue;
    FreeCopies(objects[i], made, &orders);
    plan_.Freed(objects[i], &actions);
    Forget(objects[i]);
  }
  Do(actions);
  Send(orders);
}

void Copies::OwnerGone(ProcessId owner, const std::function<bool(const Id&)>& keep) {
  const auto owned = by_owner_.find(owner);
  if (owned == by_owner_.end()) return;
  std::vector<Id> gone;
  for (const Id& id : owned->second) {
    if (!keep(id)) gone.push_back(id);
  }
  Free(gone, {});
}

std::vector<Id> Copies::ElsewhereOf(NodeNumber made) const {
  std::vector<Id> objects;
  for (const auto& [id, known] : known_) {
    if (known.place.node != made) continue;
    const rules::Broadcast::Object* object = plan_.Find(id);
    if (object != nullptr && !object->holders.empty()) objects.push_back(id);
  }
  return objects;
}

void Copies::NodeDown(NodeNumber node) {
  rules::BroadcastActions actions;
  down_.insert(node);
  plan_.NodeDown(node, &actions);
  std::vector<Id> forgotten;
  for (const auto& [id, known] : known_) {
    if (plan_.Find(id) == nullptr) forgotten.push_back(id);
  }
  for (const Id& id : forgotten) Forget(id);
  Do(actions);
}

}  // namespace manta::node
