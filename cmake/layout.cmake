# Where things go. The build tree has the layout of an installed one (bin/ beside lib/), so that libmanta.so finds its
# daemon by the same relative path in both, and neither holds an absolute path.
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "Library folder under the prefix")
include(GNUInstallDirs)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${CMAKE_INSTALL_BINDIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR})
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/archives)

file(RELATIVE_PATH manta_lib_to_bin /p/${CMAKE_INSTALL_LIBDIR} /p/${CMAKE_INSTALL_BINDIR})
file(RELATIVE_PATH manta_bin_to_lib /p/${CMAKE_INSTALL_BINDIR} /p/${CMAKE_INSTALL_LIBDIR})
set(CMAKE_INSTALL_RPATH $ORIGIN/${manta_bin_to_lib})
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

# The daemon's place as seen from the folder of libmanta.so, and the version that programs print.
add_compile_definitions(MANTA_DAEMON_FROM_LIB="${manta_lib_to_bin}/mantad" MANTA_VERSION="${PROJECT_VERSION}")
