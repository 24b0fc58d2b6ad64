// error: Manta cannot send a raw pointer
#include "manta/manta.h"

int First(const int* values) { return values[0]; }

void Use(const int* values) { (void)manta::Task(First).Remote(values); }
