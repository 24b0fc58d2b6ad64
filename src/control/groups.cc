#include "control/groups.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace manta::control {
namespace {

using wire::Table;

std::string KeyOf(const Id& group) { return "group/" + ToHex(group); }

std::string Encoded(const GroupFacts& facts) {
  std::string text(EncodedSize(facts), '\0');
  Encode(facts, std::as_writable_bytes(std::span(text)));
  return text;
}

Result<GroupFacts> Decoded(const std::string& text) {
  try {
    return Decode<GroupFacts>(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    return Status(Code::kCorrupt, Cat("a record in the table of placement groups does not decode: ", error.what()));
  }
}

std::string FailedFrame(const Status& why, std::uint64_t call) {
  return wire::EncodeFrame(wire::Failed{ToFailure(why)}, call);
}

}  // namespace

Groups::Groups(base::Loop& loop, Tables& tables, Ways ways) : loop_(loop), tables_(tables), ways_(std::move(ways)) {}

Groups::~Groups() {
  *alive_ = false;
  loop_.Cancel(timer_);
}

void Groups::Open(std::function<void(const Status&)> done) {
  const auto each = [this, alive = alive_](const Entry& entry) {
    if (!*alive) return Status();
    const Result<GroupFacts> facts = Decoded(entry.value);
    return facts.ok() ? table_.Restore(facts.value(), base::NowMicros()) : facts.status();
  };
  tables_.ScanAll(Table::kGroups, "group/", each, [this, alive = alive_, done = std::move(done)](const Status& status) {
    if (!*alive) return;
    if (status.ok()) Arm();
    done(status);
  });
}

void Groups::Heard(const rules::Heartbeat& heartbeat) {
  rules::GroupTable::Out out;
  const std::int64_t now = base::NowMicros();
  if (heartbeat.draining) {
    table_.NodeDown(heartbeat.node, now, &out);
  } else {
    table_.SetLabels(heartbeat.node, heartbeat.labels);
    table_.NodeHeard(heartbeat.node, heartbeat.total, heartbeat.reservable, now, &out);
  }
  Carry(std::move(out));
}

void Groups::NodeDown(NodeNumber node) {
  rules::GroupTable::Out out;
  table_.NodeDown(node, base::NowMicros(), &out);
  table_.HomeGone(node, base::NowMicros(), &out);
  Carry(std::move(out));
}

std::string Groups::WholeView() const {
  wire::GroupsView view;
  view.whole = true;
  for (const auto& [id, facts] : table_.all()) view.groups.push_back(facts);
  return wire::EncodeFrame(view);
}

// ---- what nodes say ----

bool Groups::OnFrame(NodeNumber from, const wire::Frame& frame, const std::function<void(std::string frame)>& answer) {
  const std::uint64_t call = frame.call;
  if (const Result<wire::BundleAnswer> message = frame.As<wire::BundleAnswer>(); message.ok()) {
    Answered(from, message.value());
  } else if (const Result<wire::CreateGroup> create = frame.As<wire::CreateGroup>(); create.ok()) {
    Create(create.value(), call, answer);
  } else if (const Result<wire::RemoveGroup> remove = frame.As<wire::RemoveGroup>(); remove.ok()) {
    rules::GroupTable::Out out;
    table_.Remove(remove.value().group, "it was removed", base::NowMicros(), &out);
    Carry(std::move(out), [answer, call](const Status& saved) {
      answer(saved.ok() ? wire::EncodeFrame(wire::Done{}, call) : FailedFrame(saved, call));
    });
  } else if (const Result<wire::FindGroup> find = frame.As<wire::FindGroup>(); find.ok()) {
    const GroupFacts* facts = find.value().group.empty() ? table_.Find(find.value().name, find.value().space)
                                                         : table_.Find(find.value().group);
    if (facts != nullptr) {
      answer(wire::EncodeFrame(wire::GroupMade{*facts}, call));
    } else if (find.value().group.empty()) {
      answer(FailedFrame(Status(Code::kNotFound, Cat("there is no placement group named '", find.value().name,
                                                     "' in namespace '", find.value().space, "'")),
                         call));
    } else {
      answer(FailedFrame(Status(Code::kNotFound, Cat("placement group (", ToString(find.value().group),
                                                     ") was removed, or never made in this cluster")),
                         call));
    }
  } else if (frame.As<wire::ListGroups>().ok()) {
    wire::GroupList list;
    for (const auto& [id, facts] : table_.all()) list.groups.push_back(facts);
    answer(wire::EncodeFrame(list, call));
  } else if (const Result<wire::JobGone> gone = frame.As<wire::JobGone>(); gone.ok()) {
    rules::GroupTable::Out out;
    table_.JobEnded(gone.value().job, base::NowMicros(), &out);
    Carry(std::move(out));
  } else {
    return false;
  }
  return true;
}

void Groups::Create(const wire::CreateGroup& message, std::uint64_t call,
                    const std::function<void(std::string frame)>& answer) {
  rules::GroupTable::Out out;
  const Status made = table_.Create(message.facts, false, base::NowMicros(), &out);
  if (!made.ok()) {
    Carry(std::move(out));
    return answer(FailedFrame(made, call));
  }
  const GroupFacts facts = *table_.Find(message.facts.group);
  Carry(std::move(out), [answer, call, facts](const Status& saved) {
    answer(saved.ok() ? wire::EncodeFrame(wire::GroupMade{facts}, call) : FailedFrame(saved, call));
  });
}

void Groups::Answered(NodeNumber from, const wire::BundleAnswer& message) {
  rules::GroupTable::Out out;
  const std::int64_t now = base::NowMicros();
  switch (message.what) {
    case wire::BundleAnswer::What::kReserved:
      table_.Reserved(message.group, message.attempt, message.bundle, from, now, &out);
      break;
    case wire::BundleAnswer::What::kCommitted:
      table_.Committed(message.group, message.attempt, message.bundle, from, now, &out);
      break;
    case wire::BundleAnswer::What::kRefused:
      table_.Refused(message.group, message.attempt, message.bundle, from, message.available, now, &out);
      break;
  }
  Carry(std::move(out));
}

// ---- what follows from it ----

void Groups::Carry(rules::GroupTable::Out&& out, std::function<void(const Status&)> done) {
  for (const rules::GroupAction& order : out.orders) {
    if (const auto* reserve = std::get_if<rules::ReserveBundle>(&order)) {
      wire::ReserveBundle message{reserve->group, reserve->attempt, reserve->bundle, reserve->need, {}, 0, {}};
      if (const GroupFacts* facts = table_.Find(reserve->group); facts != nullptr) {
        message.job = facts->job;
        message.home = facts->home;
        message.quota = facts->quota;
      }
      ways_.send(reserve->node, wire::EncodeFrame(message));
    } else if (const auto* commit = std::get_if<rules::CommitBundle>(&order)) {
      ways_.send(commit->node, wire::EncodeFrame(wire::CommitBundle{commit->group, commit->attempt, commit->bundle}));
    } else if (const auto* release = std::get_if<rules::ReleaseBundle>(&order)) {
      ways_.send(release->node,
                 wire::EncodeFrame(wire::ReleaseBundle{release->group, release->attempt, release->bundle}));
    }
  }
  struct Pending {
    std::size_t left = 0;
    Status worst;
    std::function<void(const Status&)> done;
  };
  auto batch = std::make_shared<Pending>();
  batch->left = out.changed.size();
  batch->done = std::move(done);
  if (out.changed.empty() && batch->done) batch->done({});
  for (const GroupFacts& facts : out.changed) {
    wire::ControlWrite write;
    write.table = Table::kGroups;
    write.key = KeyOf(facts.group);
    if (facts.state != GroupState::kRemoved) write.value = Encoded(facts);
    ++saving_;
    tables_.Write(std::move(write), [this, alive = alive_, batch, facts](const Result<ControlWritten>& written) {
      if (!*alive) return;
      --saving_;
      if (!written.ok()) {
        base::LogWarning("cannot save a placement group: %s", written.status().message().c_str());
        batch->worst = written.status();
      }
      ways_.tell_all(wire::EncodeFrame(wire::GroupsView{false, {facts}}));
      if (--batch->left == 0 && batch->done) batch->done(batch->worst);
    });
  }
  Arm();
}

void Groups::Arm() {
  loop_.Cancel(std::exchange(timer_, 0));
  const std::int64_t now = base::NowMicros();
  const std::int64_t due = table_.NextTick(now);
  if (due == rules::PlacementGroups::kNever) return;
  timer_ = loop_.After(std::max<std::int64_t>(due - now, 0), [this] {
    timer_ = 0;
    rules::GroupTable::Out out;
    table_.Tick(base::NowMicros(), &out);
    Carry(std::move(out));
  });
}

}  // namespace manta::control
