// error: Manta cannot send a raw pointer
#include "manta/manta.h"

int* Make() { return new int(1); }

void Use() { (void)manta::Task(Make).Remote(); }
