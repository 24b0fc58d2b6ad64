#include "tune/trials/choices.h"

#include <string>

namespace manta::tune {

std::string Describe(const Made& made) {
  static constexpr const char* kAnswers[] = {"configuration", "wait", "finished"};
  static constexpr const char* kDecisions[] = {"continue", "pause", "stop", "exploit"};
  static constexpr const char* kOrders[] = {"stop", "resume", "exploit"};
  const std::string trial = "trial " + std::to_string(made.trial);
  const std::string donor = made.donor >= 0 ? " from trial " + std::to_string(made.donor) : "";
  const std::string config = made.config.empty() ? "" : " {" + Describe(made.config) + "}";
  switch (made.kind) {
    case Made::Kind::kAsk:
      return "ask for " + trial + ": " + (made.answer < 3 ? kAnswers[made.answer] : "?") + config;
    case Made::Kind::kDecide:
      return "decision on " + trial + ": " + (made.answer < 4 ? kDecisions[made.answer] : "?") + donor + config +
             (made.save ? ", save" : "");
    case Made::Kind::kOrder:
      return "order for " + trial + ": " + (made.answer < 3 ? kOrders[made.answer] : "?") + donor + config;
    case Made::Kind::kChoose:
      break;
  }
  return made.trial < 0 ? "start no trial" : "start " + trial;
}

namespace trials {

const Made* Choices::Next() const {
  if (recorded_ == nullptr || made_.size() >= recorded_->size()) return nullptr;
  return &(*recorded_)[made_.size()];
}

void Choices::Add(Made made) {
  if (recorded_ != nullptr) {
    const Made* recorded = Next();
    if (recorded == nullptr) {
      throw ReplayError("the replay differs from the journal: the replay made \"" + Describe(made) +
                        "\" where the journal has no choice. Restore with the same space, searcher, scheduler and "
                        "version of Manta as the run was started with.");
    }
    if (!(*recorded == made)) {
      throw ReplayError("the replay differs from the journal: the journal has \"" + Describe(*recorded) +
                        "\", the replay made \"" + Describe(made) +
                        "\". Restore with the same space, searcher, scheduler and version of Manta as the run was "
                        "started with.");
    }
  }
  made_.push_back(std::move(made));
}

void Choices::End() {
  if (const Made* recorded = Next()) {
    throw ReplayError("the replay differs from the journal: the journal has \"" + Describe(*recorded) +
                      "\" where the replay made no choice. Restore with the same space, searcher, scheduler and "
                      "version of Manta as the run was started with.");
  }
  recorded_ = nullptr;
}

}  // namespace trials
}  // namespace manta::tune
