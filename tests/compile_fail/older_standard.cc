// error: Manta needs C++20: compile with -std=c++20 or newer.
// flags: -std=c++17
// most errors: 2
#include "manta/manta.h"

int Square(int x) { return x * x; }

int main() {
  manta::Init();
  return manta::Task(Square).Remote(3).Get();
}
