// error: none
// What the other files do wrong, done right: shows that they fail for their own reason.
#include "manta/manta.h"

int Add(int a, int b) { return a + b; }
struct Counter {
  int Value() { return 1; }
};

void Use() {
  (void)manta::Task(Add).Remote(1, manta::Put(2));
  (void)manta::Task([](const std::string& text) { return text.size(); }).Remote("text");
  (void)manta::Actor<Counter>().Remote().Task(&Counter::Value).Remote();
}
