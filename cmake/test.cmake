# manta_test(FILE.cc [BESIDE_OTHERS] [TIMEOUT SECONDS] [LABELS LABEL...] [ROOMS ROOM...]): a GoogleTest program of
# tests/, which speaks the public API (ROOMS are for the few that also look inside). Every one of its tests runs in a
# process of its own under scripts/leftovers, which fails the test when a process or a file of its own outlives it, or a
# sanitizer reports anything, whichever process it is in.
function(manta_test file)
  cmake_parse_arguments(arg "BESIDE_OTHERS" "TIMEOUT" "LABELS;ROOMS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(MANTA_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS system)
  endif()
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Debug>:-O0>)  # compiled more often than it is waited for
  target_link_libraries(${name} PRIVATE manta::manta GTest::gmock GTest::gtest_main)
  foreach(room ${arg_ROOMS})
    target_link_libraries(${name} PRIVATE manta_${room})
  endforeach()
  if(MANTA_PROGRAMS)
    add_dependencies(${name} ${MANTA_PROGRAMS})
  endif()
  # The launcher of a test is an emulator to this CMake. It gives up a little before CTest would, to tell who hangs.
  math(EXPR patience "${arg_TIMEOUT} - 10")
  set(launcher ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/leftovers run --timeout ${patience} --)
  set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR "${launcher}")
  # A cluster takes the whole (small) machine: two of them at once would only miss each other's deadlines. Not so those
  # that mostly wait, for somebody to be given up.
  set(alone ON)
  if(arg_BESIDE_OTHERS)
    set(alone OFF)
  endif()
  # NO_PRETTY_VALUES: a parameter's value may be an address, and the test would have a new name in each run.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES TEST_PREFIX "${name}."
    PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" RUN_SERIAL ${alone})
endfunction()
