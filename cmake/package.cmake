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
install(DIRECTORY include/manta DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

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
