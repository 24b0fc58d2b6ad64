// error: the actor's class has no constructor for these arguments
#include "manta/manta.h"

struct Counter {
  explicit Counter(int start) : value(start) {}
  int value;
};

void Use() { (void)manta::Actor<Counter>().Remote(std::string("x"), 2); }
