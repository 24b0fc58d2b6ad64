// TrialHost is the actor in which trials run, one after the other. Its methods run one at a time, in the order of the
// calls; every one answers with a Reply.
#pragma once

#include <functional>
#include <memory>

#include "manta/actor.h"
#include "tune/runtime/session.h"

namespace manta::tune::internal {

class TrialHost {
 public:
  using Make = std::function<std::unique_ptr<Session>(Beginning)>;
  explicit TrialHost(Make make) : make_(std::move(make)) {}

  Reply Begin(const Beginning& beginning);  // ends the trial before
  Reply Next();
  Reply Save();
  Reply Exploit(const Beginning& beginning);
  Reply End();

 private:
  Make make_;
  std::unique_ptr<Session> session_;
};

// Creates hosts for one trainable. `target` is the address of the function or of the maker of a Trainable.
ActorCreator<TrialHost, TrialHost* (*)()> HostOfFunction(void (*train)(Trial&));
ActorCreator<TrialHost, TrialHost* (*)()> HostOfTrainable(Trainable* (*make)());

}  // namespace manta::tune::internal
