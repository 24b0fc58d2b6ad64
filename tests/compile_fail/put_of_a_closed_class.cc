// error: MANTA_FIELDS(
#include "manta/manta.h"

class Closed {
 public:
  explicit Closed(int value) : value_(value) {}

 private:
  int value_;
};

void Use() { (void)manta::Put(Closed(1)); }
