# The fuzz targets (src/*/x_fuzz.cc) need clang, everything else is built by the system's compiler: so they are a nested
# build of the same rooms in <build>/fuzz. CTest runs each for a few seconds from a fixed seed.
get_property(sources GLOBAL PROPERTY MANTA_FUZZ_SOURCES)
if(NOT MANTA_FUZZ OR NOT sources)
  return()
endif()
find_program(MANTA_CLANGXX NAMES clang++-19 DOC "The compiler of the fuzz targets")
if(NOT MANTA_CLANGXX)
  message(STATUS "No clang++-19: the fuzz targets are left out (scripts/install-deps test)")
  return()
endif()

include(ExternalProject)
ExternalProject_Add(fuzz
  SOURCE_DIR ${PROJECT_SOURCE_DIR}
  BINARY_DIR ${CMAKE_BINARY_DIR}/fuzz
  PREFIX ${CMAKE_BINARY_DIR}/fuzz-steps
  CMAKE_ARGS
    -DCMAKE_CXX_COMPILER=${MANTA_CLANGXX} -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMANTA_FUZZERS_ONLY=ON
    -DMANTA_SANITIZE=fuzzer-no-link,address,undefined
  BUILD_COMMAND ${CMAKE_COMMAND} --build <BINARY_DIR> --target fuzzers -j 2
  BUILD_ALWAYS ON USES_TERMINAL_BUILD ON
  INSTALL_COMMAND "" TEST_COMMAND "")

foreach(source ${sources})
  get_filename_component(program ${source} NAME_WE)
  # A corpus beside the source, if it has one, is where the search starts; what it finds stays in the build tree.
  set(found ${CMAKE_BINARY_DIR}/fuzz/corpus/${program})
  file(MAKE_DIRECTORY ${found})
  set(seeds)
  string(REGEX REPLACE "\\.cc$" "_corpus" corpus ${source})
  if(IS_DIRECTORY ${corpus})
    set(seeds ${corpus})
  endif()
  add_test(NAME fuzz.${program} WORKING_DIRECTORY ${found}
    COMMAND ${CMAKE_BINARY_DIR}/fuzz/${CMAKE_INSTALL_BINDIR}/${program}
      -max_total_time=5 -seed=1 -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 ${found} ${seeds})
  set_tests_properties(fuzz.${program} PROPERTIES TIMEOUT 60 LABELS fuzz)
endforeach()
