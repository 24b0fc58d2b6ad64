# Compiles FILE and compares with its first line: "// error: TEXT" means that it must not compile and that the compiler
# must say TEXT, in a line marked as an error; "// error: none" that it must compile.
# Use: cmake -DCXX=… -DINCLUDE=… -DFILE=… -P check.cmake
file(STRINGS ${FILE} lines LIMIT_COUNT 1)
string(REGEX REPLACE "^// error: " "" expected "${lines}")
execute_process(COMMAND ${CXX} -std=c++20 -fsyntax-only -I${INCLUDE} ${FILE}
  RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(expected STREQUAL "none")
  if(failed)
    message(FATAL_ERROR "does not compile:\n${output}")
  endif()
  return()
endif()
if(NOT failed)
  message(FATAL_ERROR "compiles, but should say: ${expected}")
endif()
string(FIND "${output}" "${expected}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "fails to compile, but without saying \"${expected}\":\n${output}")
endif()
string(REGEX MATCHALL "(error|static assertion failed): " errors "${output}")
list(LENGTH errors count)
message("${count} errors, among them: ${expected}")
