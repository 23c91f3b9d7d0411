# cmake -DBUILD=... -DPREFIX=... -DUSER_BUILD=... -P install.cmake: installs afresh and looks at what came.
file(REMOVE_RECURSE ${PREFIX} ${USER_BUILD})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

file(GLOB_RECURSE installed RELATIVE ${PREFIX} ${PREFIX}/*)
foreach(wanted "include/trireme/trireme.h" "include/trireme/base/error.h" "include/trireme/version.h"
               "share/trireme/examples/digits[.]toml" "share/trireme/examples/data/digits-images-idx3-ubyte[.]gz"
               "share/trireme/machines/h100x8[.]toml" "share/doc/[^;]*/docs/guide/03_starting_a_job[.]md"
               "lib[^;]*/libtrireme[.]a" "lib[^;]*/cmake/trireme/trireme-config[.]cmake")
  if(NOT installed MATCHES "(^|;)${wanted}(;|$)")
    message(FATAL_ERROR "not installed: ${wanted}; installed: ${installed}")
  endif()
endforeach()
foreach(refused "CMakeLists" "_impl[.]h" "_test[.]" "[.]cpp(;|$)" "/checks[.]h")
  if(installed MATCHES "${refused}")
    message(FATAL_ERROR "installed, though it is no part of the library: ${CMAKE_MATCH_0}; installed: ${installed}")
  endif()
endforeach()
