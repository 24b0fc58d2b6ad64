// Ends a compilation as an older standard with one sentence, before thousands of lines about templates.
#pragma once

#if __cplusplus < 202002L
#error "Manta needs C++20: compile with -std=c++20 or newer."
// A file that is missing ends the compilation; #error alone does not.
#define MANTA_END_OF_COMPILATION "manta/internal/no_such_file"
#include MANTA_END_OF_COMPILATION
#endif
