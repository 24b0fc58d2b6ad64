#include "control/kept_actors.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"

namespace manta::control {
namespace {

constexpr std::string_view kOrders = "kept/";
constexpr std::string_view kHomes = "home/";
constexpr std::string_view kJournals = "journal/";

// What is kept under kHomes.
struct Home {
  NodeNumber home = 0;
  std::uint32_t epoch = 0;
};

std::string JournalOf(const Id& actor) { return Cat(kJournals, ToHex(actor), "/"); }

std::string PartOf(const Id& actor, std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return Cat(JournalOf(actor), text);
}

template <typename T>
std::string Encoded(const T& value) {
  std::string text(EncodedSize(value), '\0');
  Encode(value, std::as_writable_bytes(std::span(text)));
  return text;
}

template <typename T>
Result<T> Decoded(const std::string& text) {
  try {
    return Decode<T>(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    return Status(Code::kCorrupt, Cat("it does not decode: ", error.what()));
  }
}

std::string Refusal(const Status& why, std::uint64_t call) {
  return wire::EncodeFrame(wire::Failed{ToFailure(why)}, call);
}

}  // namespace

// ---- the tables ----

void KeptActors::Write(std::string key, std::optional<std::string> value, std::function<void(const Status&)> done) {
  wire::ControlWrite write;
  write.table = Table::kActors;
  write.key = std::move(key);
  write.value = std::move(value);
  tables_.Write(std::move(write), [alive = alive_, done = std::move(done)](const Result<ControlWritten>& written) {
    if (!*alive) return;
    if (!written.ok()) {
      base::LogWarning("cannot save a detached actor: %s", written.status().message().c_str());
    }
    if (done) done(written.status());
  });
}

void KeptActors::ScanAll(const std::string& prefix, std::function<void(const Entry&)> each,
                         std::function<void(const Status&)> done) {
  tables_.ScanAll(
      Table::kActors, prefix,
      [alive = alive_, each = std::move(each)](const Entry& entry) {
        if (*alive) each(entry);
        return Status();
      },
      [alive = alive_, done = std::move(done)](const Status& status) {
        if (*alive) done(status);
      });
}

void KeptActors::Erase(const std::string& prefix, const std::string& before) {
  auto keys = std::make_shared<std::vector<std::string>>();
  ScanAll(
      prefix,
      [keys, before](const Entry& entry) {
        if (before.empty() || entry.key < before) keys->push_back(entry.key);
      },
      [this, keys](const Status&) {
        for (std::string& key : *keys) Write(std::move(key), std::nullopt, nullptr);
      });
}

void KeptActors::SaveHome(const Id& actor, std::function<void(const Status&)> done) {
  const Kept& kept = kept_[actor];
  Write(Cat(kHomes, ToHex(actor)), Encoded(Home{kept.home, kept.epoch}), std::move(done));
}

void KeptActors::Open(const std::function<bool(NodeNumber)>& lives, std::function<void(const Status&)> done) {
  const auto each = [this, lives](const Entry& entry) {
    Result<Home> home = Decoded<Home>(entry.value);
    Id actor;
    if (!FromHex(entry.key.substr(kHomes.size()), &actor)) home = Status(Code::kCorrupt, "its key names no actor");
    if (!home.ok()) {
      base::LogWarning(
          "the record '%s' (%zu bytes) in the table of actors is skipped, and its actor not known any more: %s",
          entry.key.c_str(), entry.value.size(), home.status().message().c_str());
      return;
    }
    Kept& kept = kept_[actor];
    kept.epoch = home.value().epoch;
    kept.home = lives(home.value().home) ? home.value().home : 0;
    kept.why = "its node was lost while the head was down";
  };
  ScanAll(std::string(kHomes), each, std::move(done));
}

// ---- what nodes say ----

bool KeptActors::OnFrame(NodeNumber from, const wire::Frame& frame, const Reply& reply) {
  if (const Result<wire::KeepJournal> journal = frame.As<wire::KeepJournal>(); journal.ok()) {
    Journal(from, journal.value(), frame.call, reply);
  } else if (const Result<wire::KeepActor> keep = frame.As<wire::KeepActor>(); keep.ok()) {
    Keep(from, keep.value(), frame.call, reply);
  } else if (const Result<wire::ForgetActor> forget = frame.As<wire::ForgetActor>(); forget.ok()) {
    const auto it = kept_.find(forget.value().actor);
    if (it != kept_.end() && it->second.home == from) Forget(forget.value().actor);
  } else if (const Result<wire::ActorAdopted> adopted = frame.As<wire::ActorAdopted>(); adopted.ok()) {
    Adopted(from, adopted.value());
  } else if (const Result<wire::FindHome> find = frame.As<wire::FindHome>(); find.ok()) {
    TellHome(find.value().actor, frame.call, reply);
  } else if (const Result<wire::LeaveHome> leave = frame.As<wire::LeaveHome>(); leave.ok()) {
    Leave(from, leave.value().actor);
    TellHome(leave.value().actor, frame.call, reply);
  } else {
    return false;
  }
  return true;
}

void KeptActors::TellHome(const Id& actor, std::uint64_t call, const Reply& reply) {
  WhenHome(actor, [actor, call, reply](const Result<NodeNumber>& home) {
    reply(home.ok() ? wire::EncodeFrame(wire::ActorHome{actor, home.value()}, call) : Refusal(home.status(), call));
  });
}

void KeptActors::Keep(NodeNumber from, const wire::KeepActor& message, std::uint64_t call, const Reply& reply) {
  const Id actor = message.made.order.actor;
  std::string order = Encoded(message);
  if (order.size() > wire::kMaxControlValue) {
    return reply(Refusal(Status(Code::kInvalid, Cat("a detached actor is created with ", Bytes(order.size()), ": ",
                                                    Bytes(wire::kMaxControlValue),
                                                    " at most can be kept; put what is "
                                                    "large into the store, and pass a Ref")),
                         call));
  }
  if (kept_.contains(actor))
    return reply(Refusal(Status(Code::kInvalid, "an actor with this id is kept already"), call));
  Kept& kept = kept_[actor];
  kept.home = from;
  kept.adopted = true;  // it says so itself if that comes to nothing
  const auto answer = [this, actor, call, reply](const Status& saved) {
    if (saved.ok()) return reply(wire::EncodeFrame(wire::Done{}, call));
    Forget(actor);
    reply(Refusal(saved, call));
  };
  Write(Cat(kOrders, ToHex(actor)), std::move(order), [this, actor, answer](const Status& saved) {
    if (!saved.ok()) return answer(saved);
    SaveHome(actor, answer);
  });
}

void KeptActors::Journal(NodeNumber from, const wire::KeepJournal& message, std::uint64_t call, const Reply& reply) {
  const auto it = kept_.find(message.actor);
  if (it == kept_.end() || it->second.home != from) {
    return reply(Refusal(Status(Code::kNotFound, "this actor is another node's now"), call));
  }
  const auto answer = [call, reply](const Status& saved) {
    if (call != 0) reply(saved.ok() ? wire::EncodeFrame(wire::Done{}, call) : Refusal(saved, call));
  };
  if (message.epoch > it->second.epoch) {
    it->second.epoch = message.epoch;
    SaveHome(message.actor, message.number == 0 ? std::function<void(const Status&)>(answer) : nullptr);
  }
  if (message.number == 0) return;
  Write(PartOf(message.actor, message.number), Encoded(message.parts),
        [this, from, actor = message.actor, since = message.since, answer](const Status& saved) {
          // Before the answer: then the next part comes after it. Not if it has another home by now: that one may have
          // begun with what was there before this part, and gives the same number to something else.
          const auto still = kept_.find(actor);
          const bool its = still != kept_.end() && still->second.home == from;
          if (saved.ok() && since > 1 && its) Erase(JournalOf(actor), PartOf(actor, since));
          answer(saved);
        });
}

void KeptActors::Adopted(NodeNumber from, const wire::ActorAdopted& message) {
  const auto it = kept_.find(message.actor);
  if (it == kept_.end() || it->second.home != from) return;
  Kept& kept = it->second;
  if (message.failure.ok()) {
    kept.adopted = true;
    kept.unable.clear();
    kept.leaver = 0;
    return Answer(kept, from);
  }
  kept.unable.insert(from);
  kept.home = 0;
  kept.why = message.failure.message;
  Appoint();
}

void KeptActors::Answer(Kept& kept, const Result<NodeNumber>& home) {
  for (const auto& done : std::exchange(kept.waiting, {})) done(home);
}

void KeptActors::WhenHome(const Id& actor, std::function<void(const Result<NodeNumber>& home)> done) {
  const auto it = kept_.find(actor);
  if (it == kept_.end()) return done(Status(Code::kNotFound, Cat("actor ", ToString(actor), " is not detached")));
  if (it->second.adopted && it->second.home != 0) return done(it->second.home);
  it->second.waiting.push_back(std::move(done));
  Appoint();
}

void KeptActors::Forget(const Id& actor) {
  auto node = kept_.extract(actor);
  if (node.empty()) return;
  Answer(node.mapped(), Status(Code::kNotFound, Cat("actor ", ToString(actor), " has ended")));
  Write(Cat(kHomes, ToHex(actor)), std::nullopt, nullptr);
  Write(Cat(kOrders, ToHex(actor)), std::nullopt, nullptr);
  Erase(JournalOf(actor), {});
}

void KeptActors::ForgetAll() {
  std::vector<Id> all;
  all.reserve(kept_.size());
  for (const auto& [actor, kept] : kept_) all.push_back(actor);
  for (const Id& actor : all) Forget(actor);
}

// ---- homes ----

void KeptActors::NodeUp(NodeNumber node) {
  for (auto& [actor, kept] : kept_) {
    if (kept.home != node || kept.adopted) continue;
    kept.home = 0;  // it has not heard of its appointment
  }
  Appoint();
}

void KeptActors::NodeGone(NodeNumber node, const std::string& why) {
  for (auto& [actor, kept] : kept_) {
    kept.unable.erase(node);
    if (kept.leaver == node) kept.leaver = 0;
    if (kept.home != node) continue;
    kept.home = 0;
    kept.adopted = false;
    kept.why = Cat("node ", node, ", where it was at home, is gone: ", why);
  }
  Appoint();
}

void KeptActors::Appoint() {
  const std::vector<NodeNumber> candidates = ways_.candidates();
  for (auto& [actor, kept] : kept_) {
    if (kept.home != 0) continue;
    if (kept.damaged) {
      Answer(kept, Status(Code::kCorrupt, kept.why));
      continue;
    }
    for (const NodeNumber node : candidates) {
      if (kept.unable.contains(node) || node == kept.leaver) continue;
      kept.home = node;
      break;
    }
    if (kept.home == 0 && kept.leaver != 0 && !kept.unable.contains(kept.leaver)) kept.home = kept.leaver;
    if (kept.home == 0) {
      // It may come back when another node joins; nobody is to wait for that.
      if (!kept.unable.empty()) Answer(kept, Status(Code::kActorDied, kept.why));
      continue;
    }
    kept.adopted = false;
    SaveHome(actor, [this, id = actor, home = kept.home](const Status& saved) {
      const auto it = kept_.find(id);
      if (it == kept_.end() || it->second.home != home) return;
      if (saved.ok()) return HandOver(id, home);
      it->second.home = 0;  // tried again when the next node is heard, or asks
    });
  }
}

// Said again if the answer was lost: then it has moved, or is on its way.
void KeptActors::Leave(NodeNumber from, const Id& actor) {
  const auto it = kept_.find(actor);
  if (it == kept_.end()) return;
  Kept& kept = it->second;
  if (kept.adopted && kept.home != 0 && kept.home != from) return;
  if (kept.home == from) {
    kept.home = 0;
    kept.adopted = false;
  }
  kept.leaver = from;
  kept.unable.erase(from);
  kept.why = Cat("node ", from, ", where it was at home, is drained");
}

void KeptActors::Damaged(const Id& actor, const std::string& key, const Status& why) {
  Kept& kept = kept_[actor];
  kept.home = 0;
  kept.damaged = true;
  kept.why = Cat("actor ", ToString(actor), " cannot come back: the record '", key,
                 "' in the head's table of actors cannot be read: ", why.message());
  base::LogWarning("%s", kept.why.c_str());
  Answer(kept, Status(Code::kCorrupt, kept.why));
}

void KeptActors::HandOver(const Id& actor, NodeNumber home) {
  const auto still = [this, actor, home] {
    const auto it = kept_.find(actor);
    return it != kept_.end() && it->second.home == home && !it->second.adopted;
  };
  ScanAll(
      JournalOf(actor),
      [this, actor, home, still](const Entry& entry) {
        if (!still()) return;
        Result<std::vector<JournalPart>> parts = Decoded<std::vector<JournalPart>>(entry.value);
        if (!parts.ok()) return Damaged(actor, entry.key, parts.status());  // what it did would be told wrong
        const std::uint64_t number = std::strtoull(entry.key.c_str() + entry.key.rfind('/') + 1, nullptr, 16);
        ways_.send(home, wire::EncodeFrame(wire::KeptJournal{actor, number, std::move(*parts)}));
      },
      [this, actor, home, still](const Status& read) {
        if (!still()) return;
        if (!read.ok()) {
          kept_[actor].home = 0;  // tried again when the next node is heard, or asks
          return;
        }
        const std::string key = Cat(kOrders, ToHex(actor));
        tables_.Get(Table::kActors, key,
                    [this, alive = alive_, actor, home, still, key](const Result<ControlValue>& value) {
                      if (!*alive || !still()) return;
                      Kept& kept = kept_[actor];
                      if (!value.ok()) {
                        kept.home = 0;  // tried again when the next node is heard, or asks
                        return;
                      }
                      Result<wire::KeepActor> order = value.value().version == 0
                                                          ? Status(Code::kNotFound, "it is not there")
                                                          : Decoded<wire::KeepActor>(value.value().value);
                      if (!order.ok()) return Damaged(actor, key, order.status());
                      ways_.send(home, wire::EncodeFrame(wire::AdoptActor{std::move(order->made), order->file,
                                                                          kept.epoch, kept.why, kept.leaver}));
                      ways_.moved(actor, home);
                    });
      });
}

}  // namespace manta::control
