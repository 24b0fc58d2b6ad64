// Actors: state in a process of its own; handles that travel; names; death and restart.
#include <signal.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "manta/manta.h"

namespace {

// Counts words from many tasks at once: calls run one at a time, so there is nothing to lock.
class WordCount {
 public:
  void Add(const std::string& text) {
    std::string word;
    for (char c : text + " ") {
      if (c != ' ') {
        word += c;
      } else if (!word.empty()) {
        ++counts_[word];
        word.clear();
      }
    }
  }
  [[nodiscard]] std::map<std::string, int> Result() const { return counts_; }
  void Crash() { raise(SIGKILL); }

 private:
  std::map<std::string, int> counts_;
};

// A handle is a value: tasks may take, store and return it.
void Read(const std::string& line, const manta::ActorHandle<WordCount>& counter) {
  counter.Task(&WordCount::Add).Remote(line).Get();
}

}  // namespace

int main() {
  manta::Init();

  auto counter = manta::Actor<WordCount>().SetName("words").Remote();
  std::vector<manta::Ref<void>> reads;
  for (const char* line : {"the sea is wide", "the ray is a fish", "the fish is in the sea"}) {
    reads.push_back(manta::Task(Read).Remote(line, counter));
  }
  manta::Get(reads);

  // Anybody may find it by its name.
  for (const auto& [word, count] : manta::GetActor<WordCount>("words").Task(&WordCount::Result).Remote().Get()) {
    std::printf("%-5s %d\n", word.c_str(), count);
  }

  // A call kills it, and is tried four times in all; it comes back each time, with what it has counted.
  auto crash = manta::TryGet(counter.Task(&WordCount::Crash).Remote());
  std::printf("crashed: %s\n", crash.message().c_str());
  std::printf("words after the restart: %zu\n", counter.Task(&WordCount::Result).Remote().Get().size());

  manta::Shutdown();
  return 0;
}
