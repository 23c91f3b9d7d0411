# `cmake --install`: besides the program (cli/), the library, its headers in the tree they are included by, a package for
# find_package(trireme), and what the program's help and messages name: jobs, their data, machines and documents.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(TARGETS trireme EXPORT trireme-targets FILE_SET HEADERS)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.def")
install(EXPORT trireme-targets NAMESPACE trireme:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/trireme-config.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/trireme-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/trireme-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trireme-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/trireme-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindTriremeDnnl.cmake ${PROJECT_SOURCE_DIR}/cmake/FindTriremeGrpc.cmake
        DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples ${PROJECT_SOURCE_DIR}/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme
        FILES_MATCHING PATTERN "*.toml" PATTERN "*.txt" PATTERN "*.gz" PATTERN "*.md" PATTERN "CMakeLists.txt" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
