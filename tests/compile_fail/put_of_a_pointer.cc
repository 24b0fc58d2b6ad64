// error: Manta cannot send a raw pointer
#include "manta/manta.h"

void Use(int* value) { (void)manta::Put(value); }
