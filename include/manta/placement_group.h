// A placement group sets resources aside, in bundles, each on one node; all of them or none. Tasks and actors that are
// put into a bundle get their resources from it, and nobody else does.
//
//   auto group = manta::CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 2}}}, manta::GroupStrategy::kSpread);
//   group.Ready().Get();
//   auto ref = manta::Task(Square).InBundle(group, 1).SetCpus(2).Remote(3);
//
// It is made in the background; tasks may be submitted before it is ready. When a node of it dies, the bundles that
// were there are set aside on another one. It ends by RemovePlacementGroup, or with the program that made it unless
// `detached`: what runs in it is killed, and what waits for it fails.
//
// A PlacementGroup is a name: copies are cheap and can be passed to tasks. All functions may be called by any thread;
// they throw InvalidError if Manta is not initialised, and UnavailableError if the cluster's head is out of reach.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "manta/fields.h"
#include "manta/internal/export.h"
#include "manta/placement.h"
#include "manta/ref.h"

namespace manta {

using Bundle = std::map<std::string, double>;  // by name: {{"CPU", 2}, {"GPU", 1}}

struct GroupOptions {
  std::string name;       // for GetPlacementGroup; taken ones are refused
  std::string space;      // namespace of the name; empty: that of Init
  bool detached = false;  // lives on when the program is gone
  // By bundle, what the labels of its node must be; empty: anything.
  std::vector<std::vector<LabelRule>> labels = {};
};

class PlacementGroup {
 public:
  PlacementGroup() = default;  // names nothing
  explicit PlacementGroup(std::string id) : id_(std::move(id)) {}

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] bool empty() const { return id_.empty(); }

  // Ready when all is set aside; a task of no resources inside the group. Get throws NotFoundError if it was removed.
  [[nodiscard]] MANTA_EXPORT Ref<void> Ready() const;
  // True: it is ready. False: not yet; GroupInfo::why says what it waits for. Throws NotFoundError.
  MANTA_EXPORT bool Wait(std::chrono::microseconds timeout) const;

  friend bool operator==(const PlacementGroup&, const PlacementGroup&) = default;
  MANTA_FIELDS(id_)

 private:
  std::string id_;
};

struct GroupInfo {
  PlacementGroup group;
  std::string name;
  std::string space;
  GroupStrategy strategy = GroupStrategy::kPack;
  bool detached = false;
  bool ready = false;
  std::vector<Bundle> bundles;
  std::vector<std::string> nodes;  // of each bundle; empty: it has none now
  std::string why;                 // it cannot be had with the nodes there are
};

// Returns at once. Throws InvalidError (an empty bundle, a name that is taken); on a private cluster of one node, to
// which no other will come, InfeasibleError.
MANTA_EXPORT PlacementGroup CreatePlacementGroup(const std::vector<Bundle>& bundles,
                                                 GroupStrategy strategy = GroupStrategy::kPack,
                                                 const GroupOptions& options = {});
// What runs in it is killed; tasks and actors of it fail with NotFoundError, which says why. Twice: nothing happens.
MANTA_EXPORT void RemovePlacementGroup(const PlacementGroup& group);
// By name. Throws NotFoundError.
[[nodiscard]] MANTA_EXPORT PlacementGroup GetPlacementGroup(const std::string& name, const std::string& space = {});
// Throws NotFoundError.
[[nodiscard]] MANTA_EXPORT GroupInfo DescribePlacementGroup(const PlacementGroup& group);
[[nodiscard]] MANTA_EXPORT std::vector<GroupInfo> ListPlacementGroups();

}  // namespace manta
