# `cmake --install`: library, headers, programs, find_package(manta), pkg-config; and the same as a .deb by CPack.
if(NOT TARGET manta)
  return()
endif()
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/manta)

install(TARGETS manta EXPORT manta LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS manta_tls LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(program ${MANTA_PROGRAMS} manta-bench)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
set(without)
if(TARGET manta_tune)
  install(TARGETS manta_tune EXPORT manta ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
else()  # headers of a library that the package does not have
  set(without PATTERN "tune*" EXCLUDE)
endif()
install(DIRECTORY include/manta DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${without})
# Where they are in the source tree, so that their links hold.
install(FILES LICENSE CHANGELOG.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY doc examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*/CMakeLists.txt"
  PATTERN "*.cc" PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)

# Manual pages, and the completion of `manta` for bash, from what the programs say for --help.
find_program(MANTA_PYTHON python3 HINTS /usr/bin)
if(MANTA_PYTHON AND NOT MANTA_SANITIZE AND NOT DEFINED SKBUILD)
  set(manuals)
  foreach(program ${MANTA_PROGRAMS} manta-bench)
    if(TARGET ${program})
      get_target_property(name ${program} OUTPUT_NAME)
      if(NOT name)
        set(name ${program})
      endif()
      set(page ${CMAKE_BINARY_DIR}/package/${name}.1.gz)
      set(completion)
      if(program STREQUAL "manta_cli")
        set(completion ${CMAKE_BINARY_DIR}/package/manta)
      endif()
      add_custom_command(OUTPUT ${page} ${completion} DEPENDS ${program} scripts/manual VERBATIM
        COMMAND ${MANTA_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/manual $<TARGET_FILE:${program}> ${PROJECT_VERSION} ${page}
          ${completion})
      list(APPEND manuals ${page})
    endif()
  endforeach()
  add_custom_target(manuals ALL DEPENDS ${manuals})
  install(FILES ${manuals} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/package/manta DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()

install(EXPORT manta NAMESPACE manta:: FILE mantaTargets.cmake DESTINATION ${config_dir})
file(WRITE ${CMAKE_BINARY_DIR}/package/mantaConfig.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/mantaTargets.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/mantaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/mantaConfig.cmake ${CMAKE_BINARY_DIR}/package/mantaConfigVersion.cmake
  DESTINATION ${config_dir})

file(RELATIVE_PATH pc_to_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(cmake/manta.pc.in package/manta.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/manta.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME manta)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Manta maintainers <maintainers@manta.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_DESCRIPTION "A function becomes remote without a macro, a build system or a server.
 Tasks, actors and objects in shared memory, run by worker processes of one machine.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
# Writes the shlibs file, and the trigger that runs ldconfig after the installation.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
