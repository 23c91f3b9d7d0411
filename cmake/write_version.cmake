# cmake -DSOURCE=... -DOUTPUT=... -DCOMPILER=... -DOPTIONS=... -P write_version.cmake
execute_process(COMMAND git rev-parse --short=10 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(COMMIT "unknown")
endif()
configure_file(${SOURCE}/cmake/version.cpp.in ${OUTPUT} @ONLY)
