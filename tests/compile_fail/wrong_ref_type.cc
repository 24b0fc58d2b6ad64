// error: does not match the function's parameter
#include "manta/manta.h"

int Square(int x) { return x * x; }

void Use() { (void)manta::Task(Square).Remote(manta::Put(std::string("three"))); }
