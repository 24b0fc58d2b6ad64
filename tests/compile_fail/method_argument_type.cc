// error: does not match the function's parameter
#include "manta/manta.h"

struct Counter {
  int Add(int x) { return x; }
};

void Use(const manta::ActorHandle<Counter>& counter) { (void)counter.Task(&Counter::Add).Remote(std::string("x")); }
