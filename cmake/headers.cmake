# `headers`: every header compiles alone. Public ones see include/ only, and are compiled by the system's compiler as a
# user's would be. Not part of `all`; ninja rebuilds only what changed.
function(manta_headers name root)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*.h)
  set(sources)
  foreach(header ${headers})
    set(source ${CMAKE_BINARY_DIR}/${name}/${header}.cc)
    # Twice, so that a header without `#pragma once` shows.
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources})
    target_include_directories(${name} PRIVATE ${ARGN})
    target_compile_options(${name} PRIVATE -O0 -g0)
    add_dependencies(headers ${name})
  endif()
endfunction()

add_custom_target(headers)
manta_headers(public_headers ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include)
manta_headers(room_headers ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
