# cmake -DSOURCE=... -DUSER_BUILD=... -DPREFIX=... -DCOMPILER=... -DSANITIZE=... -P build_user.cmake
set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${USER_BUILD} -G Ninja -DCMAKE_PREFIX_PATH=${PREFIX}
                        -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${flags}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${USER_BUILD} COMMAND_ERROR_IS_FATAL ANY)
