// error: needs a function, or a lambda with plain (not auto) parameters
#include "manta/manta.h"

void Use() {
  (void)manta::Task([](auto x) { return x; }).Remote(1);
}
