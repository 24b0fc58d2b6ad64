// The seam of manta/placement_group.h, and what is said of nodes.
#include "manta/manta.h"
#include "manta/placement_group.h"
#include "owner/owner.h"

namespace manta {

namespace internal {
[[noreturn]] void Throw(const Failure& failure);  // core.cc
}

namespace {

class Here {
 public:
  Here() {
    if (visit_.owner() == nullptr) throw InvalidError("Manta is not initialised: call manta::Init() first");
  }
  owner::Owner* operator->() const { return visit_.owner(); }

 private:
  owner::Visit visit_;
};

void Check(const Status& status) {
  if (!status.ok()) internal::Throw(ToFailure(status));
}

Id IdOf(const PlacementGroup& group) {
  Id id;
  if (!FromHex(group.id(), &id) || id.empty()) {
    throw InvalidError(group.empty() ? "this PlacementGroup names nothing: it was default-constructed"
                                     : "'" + group.id() + "' is no id of a placement group");
  }
  return id;
}

std::map<std::string, double> Amounts(const Resources& resources) {
  std::map<std::string, double> out;
  for (const auto& [name, amount] : resources.amounts()) out[name] = static_cast<double>(amount) / kUnit;
  return out;
}

GroupInfo InfoOf(const GroupFacts& facts, const std::vector<wire::NodeList::Node>& nodes) {
  GroupInfo info;
  info.group = PlacementGroup(ToHex(facts.group));
  info.name = facts.name;
  info.space = facts.space;
  info.strategy = facts.strategy;
  info.detached = facts.detached;
  info.ready = facts.state == GroupState::kReady;
  info.why = facts.why;
  for (const Resources& bundle : facts.bundles) info.bundles.push_back(Amounts(bundle));
  for (const NodeNumber number : facts.nodes) {
    std::string name;
    for (const wire::NodeList::Node& node : nodes) {
      // The only node of a private cluster has no number.
      if (number != 0 && (node.number == number || node.number == 0)) name = node.name;
    }
    info.nodes.push_back(std::move(name));
  }
  return info;
}

void Nothing() {}

}  // namespace

PlacementGroup CreatePlacementGroup(const std::vector<Bundle>& bundles, GroupStrategy strategy,
                                    const GroupOptions& options) {
  GroupFacts facts;
  facts.strategy = strategy;
  facts.name = options.name;
  facts.space = options.space;
  facts.detached = options.detached;
  if (!options.labels.empty() && options.labels.size() != bundles.size()) {
    throw InvalidError(Cat("CreatePlacementGroup: ", options.labels.size(), " label rules for ", bundles.size(),
                           " bundles: give one entry for each bundle, or none"));
  }
  facts.labels = options.labels;
  for (const Bundle& bundle : bundles) {
    Resources resources;
    Bundle others = bundle;
    const double cpus = others.contains("CPU") ? others["CPU"] : 0;
    const double gpus = others.contains("GPU") ? others["GPU"] : 0;
    others.erase("CPU");
    others.erase("GPU");
    Check(owner::ToResources(cpus, gpus, others, &resources));
    facts.bundles.push_back(std::move(resources));
  }
  Result<GroupFacts> made = Here()->CreateGroup(std::move(facts));
  Check(made.status());
  return PlacementGroup(ToHex(made->group));
}

void RemovePlacementGroup(const PlacementGroup& group) { Check(Here()->RemoveGroup(IdOf(group))); }

PlacementGroup GetPlacementGroup(const std::string& name, const std::string& space) {
  Result<GroupFacts> found = Here()->FindGroup(name, space);
  Check(found.status());
  return PlacementGroup(ToHex(found->group));
}

GroupInfo DescribePlacementGroup(const PlacementGroup& group) {
  const Here here;
  Result<GroupFacts> found = here->FindGroup(IdOf(group));
  Check(found.status());
  Result<std::vector<wire::NodeList::Node>> nodes = here->ListNodes(false);
  Check(nodes.status());
  return InfoOf(*found, *nodes);
}

std::vector<GroupInfo> ListPlacementGroups() {
  const Here here;
  Result<std::vector<GroupFacts>> groups = here->ListGroups();
  Check(groups.status());
  Result<std::vector<wire::NodeList::Node>> nodes = here->ListNodes(false);
  Check(nodes.status());
  std::vector<GroupInfo> out;
  for (const GroupFacts& facts : *groups) out.push_back(InfoOf(facts, *nodes));
  return out;
}

Ref<void> PlacementGroup::Ready() const {
  static_cast<void>(IdOf(*this));
  return Task(&Nothing).SetName("PlacementGroup.Ready").SetCpus(0).InBundle(*this).Remote();
}

bool PlacementGroup::Wait(std::chrono::microseconds timeout) const {
  Result<bool> ready = Here()->AwaitGroup(IdOf(*this), timeout.count());
  Check(ready.status());
  return *ready;
}

// ---- nodes ----

std::vector<NodeInfo> Nodes(bool all) {
  const Here here;
  Result<std::vector<wire::NodeList::Node>> nodes = here->ListNodes(all);
  Check(nodes.status());
  std::vector<NodeInfo> out;
  for (const wire::NodeList::Node& node : *nodes) {
    out.push_back({node.number, node.name, node.draining, node.number == here->welcome().number, node.labels,
                   Amounts(node.total), Amounts(node.available), node.alive, node.address, node.why, node.store_bytes});
  }
  return out;
}

namespace {

std::map<std::string, double> Sum(Resources wire::NodeList::Node::* part) {
  Result<std::vector<wire::NodeList::Node>> nodes = Here()->ListNodes(false);
  Check(nodes.status());
  Resources sum;
  for (const wire::NodeList::Node& node : *nodes) sum.Add(node.*part);
  return Amounts(sum);
}

}  // namespace

std::map<std::string, double> ClusterResources() { return Sum(&wire::NodeList::Node::total); }
std::map<std::string, double> AvailableResources() { return Sum(&wire::NodeList::Node::available); }

}  // namespace manta
