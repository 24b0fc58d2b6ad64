// error: this lambda captures something, which a worker in another process cannot see
#include "manta/manta.h"

void Use(int offset) {
  (void)manta::Task([offset](int x) { return x + offset; }).Remote(1);
}
