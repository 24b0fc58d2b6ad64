# Tests of the project itself: its documents, its package, its scripts.
add_test(NAME docs COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/docs)
add_test(NAME layering COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/layering)
set(faulty)
if(TARGET faulty AND MANTA_SANITIZE MATCHES address)
  set(faulty $<TARGET_FILE:faulty> overflow undefined leak)
elseif(TARGET faulty AND MANTA_SANITIZE MATCHES thread)
  set(faulty $<TARGET_FILE:faulty> race)
endif()
add_test(NAME scripts.leftovers COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/leftovers selftest ${faulty})
add_test(NAME scripts.checks COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/selftest)
add_test(NAME wheel.requirements COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
  -DFOLDER=${CMAKE_BINARY_DIR}/requirements -P ${PROJECT_SOURCE_DIR}/tests/requirements.cmake)
set_tests_properties(docs layering scripts.leftovers scripts.checks wheel.requirements PROPERTIES TIMEOUT 60 LABELS quick)
if(faulty)
  set_tests_properties(scripts.leftovers PROPERTIES TIMEOUT 240)
endif()
if(TARGET manta_rules)
  add_test(NAME pure COMMAND ${PROJECT_SOURCE_DIR}/scripts/pure ${CMAKE_BINARY_DIR} types rules sim)
  set_tests_properties(pure PROPERTIES TIMEOUT 60)
endif()
if(TARGET manta_tune_search)
  add_test(NAME pure.libs COMMAND ${PROJECT_SOURCE_DIR}/scripts/pure ${CMAKE_BINARY_DIR} tune_search)
  set_tests_properties(pure.libs PROPERTIES TIMEOUT 60)
endif()

# The wheel, in an environment of its own, as a cluster of two hosts. Its build is mostly found in ccache; without that,
# it is the whole engine.
if(TARGET manta_python)
  add_test(NAME wheel.cluster COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/leftovers run --network --timeout 1190 --
    ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/tests/wheel.py ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${MANTA_PYTHON})
  set_tests_properties(wheel.cluster PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77 LABELS package RUN_SERIAL ON)
endif()

# Each example, alone, against an installed package. A sanitized library would need sanitized programs: there the ones of
# this tree are run.
get_property(examples GLOBAL PROPERTY MANTA_EXAMPLES)
if(MANTA_SANITIZE)
  foreach(example ${examples})
    add_test(NAME example.${example} COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/leftovers run
      --timeout 200 -- ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${example})
    set_tests_properties(example.${example} PROPERTIES TIMEOUT 240 LABELS package RUN_SERIAL ON)
    if(example STREQUAL errors)  # it shows a crash: no finding
      set_tests_properties(example.${example} PROPERTIES
        ENVIRONMENT_MODIFICATION "ASAN_OPTIONS=string_append::handle_segv=0")
    endif()
  endforeach()
elseif(examples)
  set(package ${PROJECT_SOURCE_DIR}/scripts/package ${CMAKE_BINARY_DIR})
  add_test(NAME package.install COMMAND ${package} install)
  set_tests_properties(package.install PROPERTIES FIXTURES_SETUP package TIMEOUT 60 LABELS package)
  foreach(example ${examples})
    add_test(NAME package.${example} COMMAND ${package} example ${example})
    set_tests_properties(package.${example} PROPERTIES
      FIXTURES_REQUIRED package TIMEOUT 240 LABELS package RUN_SERIAL ON)
  endforeach()
  list(GET examples 0 example)
  add_test(NAME package.pkg-config COMMAND ${package} pkg-config ${example})
  set_tests_properties(package.pkg-config PROPERTIES
    FIXTURES_REQUIRED package TIMEOUT 240 LABELS package RUN_SERIAL ON)
endif()
