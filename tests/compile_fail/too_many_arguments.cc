// error: needs exactly the arguments that the remote function takes
#include "manta/manta.h"

int Add(int a, int b) { return a + b; }

void Use() { (void)manta::Task(Add).Remote(1, 2, 3); }
