// error: that is a method of another class
#include "manta/manta.h"

struct Cat {
  void Meow() {}
};
struct Dog {
  void Bark() {}
};

void Use(const manta::ActorHandle<Cat>& cat) { (void)cat.Task(&Dog::Bark).Remote(); }
