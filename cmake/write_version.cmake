# cmake -DSOURCE=... -DKERNELS=... -DOUTPUT=... -DCOMPILER=... -DOPTIONS=... -P write_version.cmake
execute_process(COMMAND git rev-parse --short=10 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(COMMIT "unknown")
endif()
# What tuning has measured holds for these kernels.
set(digests "")
foreach(source IN LISTS KERNELS)
  file(SHA256 ${source} digest)
  string(APPEND digests ${digest})
endforeach()
string(SHA256 digest "${digests}")
string(SUBSTRING ${digest} 0 8 KERNELS_DIGEST)
configure_file(${SOURCE}/cmake/version.cpp.in ${OUTPUT} @ONLY)
