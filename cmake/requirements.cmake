# Looks for the Debian packages that this build needs before anything else does, and names all that are missing at once,
# with the command that installs them: find_package would stop at the first. Headers are looked for, because that works
# before there is a compiler.
function(manta_require_packages)
  set(missing)
  if(NOT DEFINED ENV{CXX} AND NOT CMAKE_CXX_COMPILER)
    find_program(found NAMES c++ g++ clang++ NO_CACHE)
    if(NOT found)
      list(APPEND missing g++)
    endif()
  endif()

  set(headers libcli11-dev=CLI/CLI.hpp libssl-dev=openssl/ssl.h libsqlite3-dev=sqlite3.h)
  if(NOT MANTA_LIBS STREQUAL "none")
    list(APPEND headers libeigen3-dev=eigen3/Eigen/Core)
  endif()
  if(MANTA_TESTS)
    list(APPEND headers libgtest-dev=gtest/gtest.h libgmock-dev=gmock/gmock.h)
  endif()
  foreach(pair ${headers})
    string(REGEX MATCH "^([^=]+)=(.+)$" pair ${pair})
    unset(found)
    find_path(found ${CMAKE_MATCH_2} PATHS /usr/include NO_CACHE)
    if(NOT found)
      list(APPEND missing ${CMAKE_MATCH_1})
    endif()
  endforeach()

  if(DEFINED SKBUILD AND Python3_EXECUTABLE)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_paths()['include'])"
      OUTPUT_VARIABLE include OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT EXISTS ${include}/Python.h)
      list(APPEND missing python3-dev)
    endif()
  endif()

  if(missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR "cannot build Manta: packages are missing. On Debian or Ubuntu install them with\n"
      "  sudo apt-get install ${missing}\n"
      "Elsewhere install the packages with the same headers, then start again.")
  endif()
endfunction()
