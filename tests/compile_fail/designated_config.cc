// error: none
// flags: -std=c++20 -Wall -Wextra -Wpedantic -Werror
#include "manta/manta.h"

int main() {
  manta::Init({.cpus = 4});
  (void)manta::Put(3, {.durable = false});
}
