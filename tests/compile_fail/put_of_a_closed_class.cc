// error: write MANTA_FIELDS(a, b) or a Serialize(archive) member into it
#include "manta/manta.h"

class Closed {
 public:
  explicit Closed(int value) : value_(value) {}

 private:
  int value_;
};

void Use() { (void)manta::Put(Closed(1)); }
