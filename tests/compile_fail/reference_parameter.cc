// error: a remote function cannot change its caller
#include "manta/manta.h"

void Increment(int& x) { ++x; }

void Use() {
  int x = 1;
  (void)manta::Task(Increment).Remote(x);
}
