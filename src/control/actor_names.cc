#include "control/actor_names.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/log.h"

namespace manta::control {
namespace {

using Name = rules::ActorNames::Name;

constexpr std::string_view kPrefix = "name/";

std::string KeyOf(const Name& name) { return Cat(kPrefix, name.first.size(), "/", name.first, "/", name.second); }

// False: nobody of ours wrote it.
bool Parse(const std::string& key, Name* name) {
  char* end = nullptr;
  const std::size_t length = std::strtoul(key.c_str() + kPrefix.size(), &end, 10);
  const std::size_t at = static_cast<std::size_t>(end - key.c_str()) + 1;
  if (key.size() < at || key.size() - at < length + 1) return false;
  name->first = key.substr(at, length);
  name->second = key.substr(at + length + 1);
  return true;
}

wire::NamedActor ToMessage(const rules::ActorNames::Bearer& bearer) {
  return wire::NamedActor{bearer.actor, bearer.home, bearer.class_name};
}

}  // namespace

void ActorNameTable::Open(std::function<bool(const wire::NamedActor&)> lives, std::function<void(const Status&)> done) {
  const auto each = [this, alive = alive_, lives = std::move(lives)](const Entry& entry) {
    if (!*alive) return Status();
    Name name;
    wire::NamedActor named;
    try {
      named = Decode<wire::NamedActor>(std::as_bytes(std::span(entry.value)));
    } catch (const Error& error) {
      return Status(Code::kCorrupt, Cat("a record in the table of actors does not decode: ", error.what()));
    }
    if (!Parse(entry.key, &name)) return Status();
    if (lives(named)) {
      static_cast<void>(names_.Claim(name, {named.actor, named.home, named.class_name}));
    } else {
      Save(name, nullptr);
    }
    return Status();
  };
  tables_.ScanAll(Table::kActors, std::string(kPrefix), each,
                  [alive = alive_, done = std::move(done)](const Status& status) {
                    if (*alive) done(status);
                  });
}

bool ActorNameTable::OnFrame(NodeNumber from, const wire::Frame& frame, const Reply& reply) {
  if (const Result<wire::ClaimName> claim = frame.As<wire::ClaimName>(); claim.ok()) {
    Claim(from, claim.value(), frame.call, reply);
    return true;
  }
  if (const Result<wire::FindName> find = frame.As<wire::FindName>(); find.ok()) {
    reply(Find(find.value(), frame.call));
    return true;
  }
  if (const Result<wire::ListNames> list = frame.As<wire::ListNames>(); list.ok()) {
    wire::NameList names;
    for (const auto& [name, bearer] : names_.all()) {
      if (list.value().space.empty() || name.first == list.value().space)
        names.names.push_back({name.first, name.second});
    }
    reply(wire::EncodeFrame(names, frame.call));
    return true;
  }
  if (const Result<wire::ReleaseName> release = frame.As<wire::ReleaseName>(); release.ok()) {
    const Name name{release.value().space, release.value().name};
    if (names_.Release(name, release.value().actor)) Save(name, nullptr);
    return true;
  }
  return false;
}

void ActorNameTable::Claim(NodeNumber from, const wire::ClaimName& message, std::uint64_t call, const Reply& reply) {
  const Name name{message.space, message.name};
  if (const std::size_t size = KeyOf(name).size(); size > wire::kMaxControlKey) {
    const std::string why = Cat("an actor's name and namespace of ", size,
                                " bytes are too long: ", wire::kMaxControlKey, " at most; choose a shorter name");
    return reply(wire::EncodeFrame(wire::Failed{Failure{Code::kInvalid, why, {}, {}}}, call));
  }
  const rules::ActorNames::Bearer bearer = names_.Claim(name, {message.actor, from, message.class_name});
  const std::string answer = wire::EncodeFrame(ToMessage(bearer), call);
  if (bearer.actor != message.actor) return reply(answer);
  Save(name, [this, reply, answer, name, call, actor = message.actor](const Status& saved) {
    if (saved.ok()) return reply(answer);
    names_.Release(name, actor);
    reply(wire::EncodeFrame(wire::Failed{ToFailure(saved)}, call));
  });
}

Id ActorNameTable::ActorOf(const wire::FindName& message) const {
  const auto* bearer = names_.Find({message.space, message.name});
  return bearer == nullptr ? Id() : bearer->actor;
}

std::string ActorNameTable::Find(const wire::FindName& message, std::uint64_t call) const {
  const auto* bearer = names_.Find({message.space, message.name});
  if (bearer != nullptr) return wire::EncodeFrame(ToMessage(*bearer), call);
  const std::string why = Cat("no living actor is named \"", message.name, "\" in namespace \"", message.space,
                              "\"; check the spelling and the namespace, or create it with get_if_exists");
  return wire::EncodeFrame(wire::Failed{Failure{Code::kNotFound, why, {}, {}}}, call);
}

void ActorNameTable::NodeGone(NodeNumber node, const std::function<bool(const Id& actor)>& stays) {
  for (const Name& name : names_.NodeGone(node, stays)) Save(name, nullptr);
}

void ActorNameTable::Moved(const Id& actor, NodeNumber home) {
  for (const Name& name : names_.Moved(actor, home)) Save(name, nullptr);
}

// As it is now: deleted, if nobody has it.
void ActorNameTable::Save(const Name& name, std::function<void(const Status&)> done) {
  wire::ControlWrite write;
  write.table = Table::kActors;
  write.key = KeyOf(name);
  if (const auto* bearer = names_.Find(name); bearer != nullptr) {
    const wire::NamedActor record = ToMessage(*bearer);
    std::string text(EncodedSize(record), '\0');
    Encode(record, std::as_writable_bytes(std::span(text)));
    write.value = std::move(text);
  }
  tables_.Write(std::move(write), [alive = alive_, done = std::move(done)](const Result<ControlWritten>& written) {
    if (!*alive) return;
    if (!written.ok()) {
      base::LogWarning("cannot save an actor's name: %s", written.status().message().c_str());
    }
    if (done) done(written.status());
  });
}

}  // namespace manta::control
