# manta_room(NAME ROOM...): the folder's sources as a static archive manta_NAME that may use the named rooms (the
# layering table, repeated by the linker); its *_test.cc as the program NAME_test; each x_fuzz.cc as a fuzz target.
# FUZZED FILE...: of this room the fuzz targets need no others, so their build makes no others; all, if it is not said.
function(manta_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "" "" FUZZED)
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  if(MANTA_FUZZERS_ONLY AND room_FUZZED)
    list(TRANSFORM room_FUZZED PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  endif()
  if(NOT sources)  # a room of headers only is still a room
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
    file(WRITE ${sources} "")
  endif()

  add_library(manta_${name} STATIC ${sources})
  target_include_directories(manta_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  foreach(used ${room_UNPARSED_ARGUMENTS})
    target_link_libraries(manta_${name} PUBLIC manta_${used})
  endforeach()
  target_link_libraries(manta_${name} PUBLIC Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY MANTA_ROOMS ${name})
  set_property(GLOBAL APPEND PROPERTY MANTA_FUZZ_SOURCES ${fuzzers})

  if(MANTA_FUZZERS_ONLY)
    foreach(source ${fuzzers})
      get_filename_component(program ${source} NAME_WE)
      add_executable(${program} EXCLUDE_FROM_ALL ${source})
      target_link_libraries(${program} PRIVATE manta_${name})
      target_link_options(${program} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${program})
    endforeach()
  elseif(MANTA_TESTS AND tests)
    manta_room_tests(${name} ${tests})
  endif()
endfunction()

# manta_room_tests(NAME FILE...): the tests of a room as the program NAME_test.
function(manta_room_tests name)
  add_executable(${name}_test ${ARGN})
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Debug>:-O0>)  # compiled more often than it is waited for
  target_link_libraries(${name}_test PRIVATE manta_${name} GTest::gmock GTest::gtest_main)
  add_dependencies(quick_tests ${name}_test)
  set(timeout 60)
  if(MANTA_SANITIZE)
    set(timeout 240)
  endif()
  if(MANTA_SANITIZE)
    # It sees the sanitizer's reports of all processes, also of those whose end the test does not look at.
    set_target_properties(${name}_test PROPERTIES CROSSCOMPILING_EMULATOR
      "${MANTA_PYTHON};${PROJECT_SOURCE_DIR}/scripts/leftovers;run;--timeout;230;--")
  endif()
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES TEST_PREFIX "${name}."
    PROPERTIES TIMEOUT ${timeout} LABELS quick)
endfunction()

# manta_lib_room(NAME): the folder's sources, a room of a library, as a static archive manta_NAME that sees the public
# headers and libs/ only; its *_test.cc as the program NAME_test.
function(manta_lib_room name)
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  add_library(manta_${name} STATIC ${sources})
  target_include_directories(manta_${name} PUBLIC ${PROJECT_SOURCE_DIR}/libs ${PROJECT_SOURCE_DIR}/include)
  if(MANTA_TESTS AND tests)
    manta_room_tests(${name} ${tests})
  endif()
endfunction()

# manta_library(ROOM...): libmanta.so, from all objects of the named rooms (not from their archives, of which the linker
# would take only what is referred to: nobody refers to the start hook); it drops what no exported name can reach.
function(manta_library)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:manta_\\1>" OUTPUT_VARIABLE objects)
  add_library(manta SHARED ${objects})
  add_library(manta::manta ALIAS manta)
  target_link_libraries(manta PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(manta PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINKER_LANGUAGE CXX LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  if(DEFINED SKBUILD)  # a wheel has no links: with a second name the library would be in it twice
    set_target_properties(manta PROPERTIES VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
  target_include_directories(manta INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(manta INTERFACE cxx_std_20)
  # Undefined symbols are errors now, not in the user's program. Sanitizers leave theirs to the executable.
  if(NOT MANTA_SANITIZE)
    target_link_options(manta PRIVATE LINKER:-z,defs)
  endif()
  target_link_options(manta PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  # Functions travel between processes as (build id, offset): a program must carry its id.
  target_link_options(manta INTERFACE LINKER:--build-id)
endfunction()

# manta_library_without_dedup(ROOM...): the same library in lib/twice, but that actors run every call that comes, also one
# that they have run before. With it (LD_LIBRARY_PATH) manta-chaos must find duplicates, or it would not find them ever.
function(manta_library_without_dedup)
  list(REMOVE_ITEM ARGN rules)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:manta_\\1>" OUTPUT_VARIABLE objects)
  add_library(manta_replay_without_dedup OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/src/rules/actor_replay.cc)
  target_include_directories(manta_replay_without_dedup PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(manta_replay_without_dedup PRIVATE MANTA_NO_DEDUP)
  add_library(manta_without_dedup SHARED EXCLUDE_FROM_ALL ${objects}
    $<FILTER:$<TARGET_OBJECTS:manta_rules>,EXCLUDE,actor_replay> $<TARGET_OBJECTS:manta_replay_without_dedup>)
  target_link_libraries(manta_without_dedup PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(manta_without_dedup PROPERTIES OUTPUT_NAME manta LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/twice)
  target_link_options(manta_without_dedup PRIVATE
    LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map LINKER:--build-id)
endfunction()
