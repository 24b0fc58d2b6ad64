#include "types/strategy.h"

#include <algorithm>

#include "types/group.h"
#include "types/text.h"

namespace manta {
namespace {

constexpr std::int64_t kMarkers = 1'000'000;  // tasks and actors in one bundle at a time: more than a node can run
const std::string kMarker = "bundle";

std::string OfGroup(const std::string& name, const Id& group) { return name + kBundleMark + ToHex(group); }
std::string OfBundle(const std::string& name, const Id& group, std::int32_t bundle) {
  return OfGroup(name, group) + kBundleMark + std::to_string(bundle);
}

Status CheckRule(const LabelRule& rule) {
  if (rule.key.empty()) return {Code::kInvalid, "a rule about labels needs the label's name"};
  const bool lists = rule.is == LabelRule::Is::kIn || rule.is == LabelRule::Is::kNotIn;
  if (lists && rule.values.empty()) {
    return {Code::kInvalid, Cat("the rule about label '", rule.key, "' names no value")};
  }
  return {};
}

}  // namespace

void AddNodeIdLabels(const std::string& name, Labels* labels) {
  (*labels)["manta.io/node-id"] = name;
  (*labels)["ray.io/node-id"] = name;
}

Status ToStrategy(const Placement& placement, Strategy* out) {
  for (const std::vector<LabelRule>* rules : {&placement.labels, &placement.prefer}) {
    for (const LabelRule& rule : *rules) {
      if (Status status = CheckRule(rule); !status.ok()) return status;
    }
  }
  *out = Strategy{placement.node, placement.soft, placement.spread, placement.labels, placement.prefer, {}, -1};
  if (placement.node.empty()) out->soft = false;
  if (placement.group.empty()) {
    if (placement.bundle != -1) return {Code::kInvalid, Cat("bundle ", placement.bundle, " of no placement group")};
    return {};
  }
  if (!FromHex(placement.group, &out->group) || out->group.empty()) {
    return {Code::kInvalid, Cat("'", placement.group, "' is no id of a placement group")};
  }
  if (placement.bundle < -1) {
    return {Code::kInvalid, Cat("there is no bundle ", placement.bundle, ": they are numbered from 0, and -1 is any")};
  }
  out->bundle = placement.bundle;
  if (!placement.node.empty() || placement.spread || !placement.labels.empty() || !placement.prefer.empty()) {
    return {Code::kInvalid, "a placement group says already where its tasks run: leave out node, spread and labels"};
  }
  return {};
}

std::string ToString(const LabelRule& rule) {
  switch (rule.is) {
    case LabelRule::Is::kPresent:
      return rule.key + " exists";
    case LabelRule::Is::kAbsent:
      return rule.key + " does not exist";
    case LabelRule::Is::kIn:
    case LabelRule::Is::kNotIn:
      break;
  }
  if (rule.is == LabelRule::Is::kIn && rule.values.size() == 1) return Cat(rule.key, "=", rule.values[0]);
  std::string text = rule.key + (rule.is == LabelRule::Is::kIn ? " in {" : " not in {");
  for (std::size_t i = 0; i < rule.values.size(); ++i) text += (i == 0 ? "" : ", ") + rule.values[i];
  return text + "}";
}

std::string ToString(const Labels& labels) {
  if (labels.empty()) return "none";
  std::string text;
  for (const auto& [key, value] : labels) text += Cat(text.empty() ? "" : ", ", key, "=", value);
  return text;
}

std::string ToString(const Strategy& strategy) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!strategy.node.empty()) add(Cat("on node ", strategy.node, strategy.soft ? " if possible" : ""));
  if (strategy.spread) add("spread");
  if (!strategy.labels.empty()) {
    std::string rules;
    for (const LabelRule& rule : strategy.labels) rules += (rules.empty() ? "" : " and ") + ToString(rule);
    add("where " + rules);
  }
  if (!strategy.group.empty()) {
    add(Cat("in ", strategy.bundle < 0 ? "any bundle" : Cat("bundle ", strategy.bundle), " of placement group ",
            ToString(strategy.group)));
  }
  return text;
}

bool Matches(const Labels& labels, const std::vector<LabelRule>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const LabelRule& rule) {
    const auto it = labels.find(rule.key);
    const bool there = it != labels.end();
    const bool in = there && std::find(rule.values.begin(), rule.values.end(), it->second) != rule.values.end();
    switch (rule.is) {
      case LabelRule::Is::kIn:
        return in;
      case LabelRule::Is::kNotIn:
        return !in;
      case LabelRule::Is::kPresent:
        return there;
      case LabelRule::Is::kAbsent:
        return !there;
    }
    return false;
  });
}

bool NamesNode(const std::string& node, const std::string& name, NodeNumber number) {
  return node == name || (number != 0 && node == std::to_string(number));
}

std::string NameOf(const GroupFacts& facts) {
  return Cat("placement group ", facts.name.empty() ? "" : Cat("'", facts.name, "' "), "(", ToString(facts.group), ")");
}

// ---- resources of bundles ----

Resources InBundle(const Resources& need, const Id& group, std::int32_t bundle) {
  Resources out;
  const auto add = [&](const std::string& name, std::int64_t amount) {
    out.Set(OfGroup(name, group), amount);
    if (bundle >= 0) out.Set(OfBundle(name, group, bundle), amount);
  };
  for (const auto& [name, amount] : need.amounts()) add(name, amount);
  add(kMarker, 1);
  return out;
}

Resources BundlePool(const Resources& has, const Id& group, std::int32_t bundle) {
  Resources out;
  const auto add = [&](const std::string& name, std::int64_t amount) {
    out.Set(OfGroup(name, group), amount);
    out.Set(OfBundle(name, group, bundle), amount);
  };
  for (const auto& [name, amount] : has.amounts()) add(name, amount);
  add(kMarker, kMarkers);
  return out;
}

bool IsBundled(const std::string& resource) { return resource.find(kBundleMark) != std::string::npos; }

Resources Plain(const Resources& resources) {
  Resources out;
  for (const auto& [name, amount] : resources.amounts()) {
    if (!IsBundled(name) && !IsQuota(name)) out.Set(name, amount);
  }
  return out;
}

std::string BaseName(const std::string& resource) { return resource.substr(0, resource.find(kBundleMark)); }

// ---- quotas of jobs ----

Resources OfQuota(const Resources& need, const Resources& quota, const Id& job) {
  Resources out;
  for (const auto& [name, amount] : quota.amounts()) {
    if (const std::int64_t taken = need.Get(name); taken != 0) out.Set(name + kQuotaMark + ToHex(job), taken);
  }
  return out;
}

bool IsQuota(const std::string& resource) { return resource.find(kQuotaMark) != std::string::npos; }

Resources QuotaOf(const Resources& resources, const Id& job) {
  Resources out;
  const std::string mark = kQuotaMark + ToHex(job);
  for (const auto& [name, amount] : resources.amounts()) {
    if (name.ends_with(mark)) out.Set(name.substr(0, name.size() - mark.size()), amount);
  }
  return out;
}

}  // namespace manta
