# The object library trireme_version: build_info(). It is made anew when HEAD has moved or a kernel has changed.
function(trireme_version)
  set(options ${CMAKE_BUILD_TYPE})
  if(UCX_FOUND)
    string(APPEND options ", ucx ${UCX_VERSION}")
  endif()
  if(MPI_CXX_FOUND)
    string(APPEND options ", mpi ${MPI_CXX_VERSION}")
  endif()
  if(TRIREME_SANITIZE)
    string(APPEND options ", sanitize ${TRIREME_SANITIZE}")
  endif()
  set(head "")
  execute_process(COMMAND git rev-parse --path-format=absolute --git-path logs/HEAD
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
  if(NOT EXISTS "${head}")
    set(head "")
  endif()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/version.cpp)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trireme/backend/cpu/*.cpp
       ${PROJECT_SOURCE_DIR}/trireme/backend/cpu/*.h)
  list(FILTER kernels EXCLUDE REGEX "_test\\.cpp$")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} "-DKERNELS=${kernels}" -DOUTPUT=${output}
            "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" "-DOPTIONS=${options}"
            -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
    DEPENDS ${PROJECT_SOURCE_DIR}/cmake/version.cpp.in ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake ${head}
            ${kernels}
    COMMENT "Looking up the commit and the kernels" VERBATIM)
  add_library(trireme_version OBJECT ${output})
  target_link_libraries(trireme_version PRIVATE trireme_options)
endfunction()
