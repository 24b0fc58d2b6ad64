# On a machine that has nothing, the configuration of a wheel names every package that is missing, in one line for apt.
# Use: cmake -DSOURCE=… -DFOLDER=… -P requirements.cmake
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/nothing)
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=CXX ${CMAKE_COMMAND} -S ${SOURCE} -B ${FOLDER} -G Ninja -DSKBUILD=2
    -DCMAKE_MAKE_PROGRAM=ninja -DCMAKE_FIND_ROOT_PATH=${FOLDER}/nothing
    -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY
  RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
set(line "sudo apt-get install g++ libcli11-dev libssl-dev libsqlite3-dev libeigen3-dev\n")
string(FIND "${output}" "${line}" at)
if(NOT failed OR at EQUAL -1)
  message(FATAL_ERROR "does not say '${line}', but:\n${output}")
endif()
