# A compiler cache and a faster linker are used where they are installed and nothing else was asked for.
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # What a precompiled header defines does not change what follows it; without this word ccache leaves its users out.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  add_compile_options(-fpch-preprocess)
endif()

include(CheckLinkerFlag)
find_program(MOLD_PROGRAM mold)
mark_as_advanced(MOLD_PROGRAM)
if(MOLD_PROGRAM AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  check_linker_flag(CXX -fuse-ld=mold TRIREME_LINKER_MOLD)
  if(TRIREME_LINKER_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
