# Compiler and linker flags, each with its reason.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The archives end up in libmanta.so, which shows only what MANTA_EXPORT marks.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
add_compile_options(-fno-semantic-interposition -ffunction-sections -fdata-sections)
# No lazy binding: the first task must not pay for symbol look-ups, and forked workers share the resolved pages.
add_compile_options(-fno-plt)
add_link_options(LINKER:-z,now LINKER:--gc-sections LINKER:--build-id=sha1)

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)

# -O2 and the baseline x86-64: one package for every amd64 machine. The hot loops are bound by cache misses, and the
# copies use non-temporal stores of SSE2, which is in the baseline. No link-time optimisation: what is hot is inline in
# headers, and scripts/pure must be able to read the archives' symbols.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
# Tests run optimised enough to meet their deadlines, with assertions of ours and of the standard library.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -D_GLIBCXX_ASSERTIONS")

if(MANTA_SANITIZE)
  add_compile_options(-fsanitize=${MANTA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MANTA_SANITIZE})
endif()

# Debian's ccache package makes rebuilds of a branch cheap; nothing depends on it.
find_program(MANTA_CCACHE ccache)
if(MANTA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MANTA_CCACHE})
endif()
