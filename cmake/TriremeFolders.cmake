# One object library per folder of trireme/, its sources found by name: a new file is picked up by the
# next build. `x_test.cpp` beside `x.cpp` goes into the folder's test program.
#
#   trireme_folder(layout [START | ONCE [BUT_PATCHED] | LOOPS] [TESTS_COMPUTE] [ROOMS_START room ...] [ROOMS_O2 room ...]
#                  [LIBS pkg::target ...] [DEFINES X=1 ...])
#
# ONCE: the folder's code runs once a job, and works on names and graphs rather than on elements, or mostly waits (comm). In a release build
# it is compiled with -O1, which takes about two thirds of the time that -O3 does. START: what it does takes milliseconds as a job starts, and
# next to nothing of the time that planning takes: -Og, which takes about three quarters of the time that -O1 does. LOOPS: it works on
# elements, and is compiled with -O3. Otherwise -O2. BUT_PATCHED: the folder's sources of which tests/defects has a patch run in each step,
# and are compiled with -O2. ROOMS_START, ROOMS_O2: the rooms of a folder, or single sources without their .cpp, that are START, or compiled
# with -O2, where the folder is not. TESTS_COMPUTE: what its tests compute themselves takes longer than to compile them with -O1.
#
# Most of the time of a build goes into headers and into templates that many sources instantiate alike, so the sources of a
# folder are compiled many at a time, as one, and those of folders with few sources together with those of others. Every
# source still includes what it uses: the preset `dev` compiles each by itself (TRIREME_TOGETHER and TRIREME_PRECOMPILE off).

add_library(trireme_options INTERFACE)
target_include_directories(trireme_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_compile_options(trireme_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CONFIG:Release>:-Wno-restrict -Wno-stringop-overflow>)  # false alarms of g++ 12 on std::string at -O3
# g++ collects its garbage before it has used 512 MiB, which takes a tenth of a build's time and frees little.
set(trireme_no_early_garbage $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)
target_compile_options(trireme_options INTERFACE ${trireme_no_early_garbage})
option(TRIREME_TOGETHER "Compile several sources at a time" ON)
# A precompiled header is another one in each build tree, so what is compiled with it has no place in a cache of several.
set(precompile ON)
if(CCACHE_PROGRAM)
  set(precompile OFF)
endif()
option(TRIREME_PRECOMPILE "Precompile the headers that many sources include; off where there is ccache" ${precompile})
if(TRIREME_WERROR)
  target_compile_options(trireme_options INTERFACE -Werror)
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()
if(TRIREME_FUZZ)  # marks the branches taken, for libFuzzer; an undefined operation ends the program
  target_compile_options(trireme_options INTERFACE -O1 -fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()

set_property(GLOBAL PROPERTY TRIREME_FOLDERS "")

# What most sources of the library include, precompiled for those that are compiled as the target is: each of the compiler's levels has its
# own, for g++ 12 ends with internal errors where one serves several. What most of a level work on comes with it: graphs and ops with those
# that run once a job. That a source includes what it uses is seen where nothing is precompiled (preset `dev`).
function(trireme_precompiled name level)
  if(NOT TRIREME_PRECOMPILE)
    return()
  endif()
  set(headers trireme_headers_${level})
  if(NOT TARGET ${headers})
    file(WRITE ${CMAKE_BINARY_DIR}/${headers}.cpp "")
    add_library(${headers} OBJECT ${CMAKE_BINARY_DIR}/${headers}.cpp)
    target_link_libraries(${headers} PRIVATE trireme_options fmt::fmt Threads::Threads)
    target_compile_options(${headers} PRIVATE $<$<CONFIG:Release>:-${level}>)
    set(own base/error.h)
    if(NOT level STREQUAL "O2")
      list(APPEND own ir/program.h op/op_def.h)
    endif()
    list(TRANSFORM own PREPEND ${PROJECT_SOURCE_DIR}/trireme/)
    target_precompile_headers(${headers} PRIVATE <fmt/format.h> <algorithm> <array> <atomic> <charconv> <chrono> <cmath>
      <condition_variable> <cstdint> <cstring> <deque> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string>
      <string_view> <thread> <tuple> <unordered_map> <utility> <vector> ${own})
  endif()
  target_precompile_headers(${name} REUSE_FROM ${headers})
endfunction()

# Compiles the sources of a target together, at most so many at a time, in units of about equal size.
function(trireme_together name most)
  if(NOT TRIREME_TOGETHER)
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(LENGTH sources count)
  math(EXPR units "(${count} + ${most} - 1) / ${most}")
  math(EXPR size "(${count} + ${units} - 1) / ${units}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  target_compile_options(${name} PRIVATE -Wno-subobject-linkage)  # takes the sources for headers
endfunction()

# The same for a folder of the library. Sources of which tests/defects has a patch stand in units of their own, so that the program with
# defects needs to compile no others again. Those of folders that are ONCE are a few here and there: they are units together
# (trireme_sources_of_folders), for which their unnamed namespaces have no name twice.
file(GLOB_RECURSE trireme_patches CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/defects/patches
     ${PROJECT_SOURCE_DIR}/tests/defects/patches/*.patch)
set_property(GLOBAL PROPERTY TRIREME_PATCHED "")
set_property(GLOBAL PROPERTY TRIREME_FORMATS "")

# Into `out` those of the sources that have a patch.
function(trireme_patched out sources)
  set(patched "")
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
    if(${path}.patch IN_LIST trireme_patches)
      list(APPEND patched ${source})
    endif()
  endforeach()
  set(${out} "${patched}" PARENT_SCOPE)
endfunction()

# Into `out` those of the sources that include a library of a file format whose header takes seconds to compile. They run once a job and
# are units together (trireme_sources_of_folders), for which their unnamed namespaces have no name twice.
function(trireme_formats out sources)
  set(formats "")
  foreach(source IN LISTS sources)
    file(STRINGS ${source} include REGEX "^#include <(nlohmann/json\\.hpp|toml\\+\\+/toml\\.h)>")
    if(include)
      list(APPEND formats ${source})
    endif()
  endforeach()
  set(${out} "${formats}" PARENT_SCOPE)
endfunction()

# Into `out` those of the sources that have options of their own. They are compiled by themselves, as the last of the library, since each
# takes a few seconds, so that no core is idle for long when the others are done.
function(trireme_alone out sources)
  set(alone "")
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      list(APPEND alone ${source})
    endif()
  endforeach()
  set(${out} "${alone}" PARENT_SCOPE)
endfunction()

# Units of about equal size, of at most so many sources.
function(trireme_units most sources)
  list(LENGTH sources count)
  math(EXPR units "(${count} + ${most} - 1) / ${most}")
  set(at 0)
  foreach(source IN LISTS sources)
    math(EXPR unit "${at} * ${units} / ${count}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${unit})
    math(EXPR at "${at} + 1")
  endforeach()
endfunction()

function(trireme_folder_together name most sources)
  trireme_together(trireme_${name} ${most})
  if(NOT TRIREME_TOGETHER)
    return()
  endif()
  trireme_patched(patched "${sources}")
  set_source_files_properties(${patched} PROPERTIES UNITY_GROUP patched)
  set(others ${sources})
  list(REMOVE_ITEM others ${patched})
  trireme_units(${most} "${others}")
  set_target_properties(trireme_${name} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# The sources of several folders that are units together: trireme_sources_of_folders(patched TRIREME_PATCHED O1 15 [LIBS ...]).
function(trireme_sources_of_folders name property level most)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  get_property(sources GLOBAL PROPERTY ${property})
  if(NOT sources)
    return()
  endif()
  add_library(trireme_${name} OBJECT ${sources})
  target_link_libraries(trireme_${name} PUBLIC trireme_options fmt::fmt Threads::Threads ${ARG_LIBS})
  target_compile_options(trireme_${name} PRIVATE $<$<CONFIG:Release>:-${level}>)
  trireme_precompiled(trireme_${name} ${level})
  trireme_together(trireme_${name} ${most})
  trireme_units(${most} "${sources}")
  set_target_properties(trireme_${name} PROPERTIES UNITY_BUILD_MODE GROUP)
  set_property(GLOBAL APPEND PROPERTY TRIREME_FOLDERS ${name})
endfunction()

# The library's sources that are compiled by themselves.
function(trireme_sources_alone)
  get_property(sources GLOBAL PROPERTY TRIREME_ALONE)
  if(sources)
    add_library(trireme_alone OBJECT ${sources})
    target_link_libraries(trireme_alone PUBLIC trireme_options fmt::fmt Threads::Threads)
    set_property(GLOBAL APPEND PROPERTY TRIREME_FOLDERS alone)
  endif()
endfunction()

function(trireme_folder name)
  cmake_parse_arguments(ARG "START;ONCE;BUT_PATCHED;LOOPS;TESTS_COMPUTE" "" "ROOMS_START;ROOMS_O2;LIBS;DEFINES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)
    return()
  endif()
  set(level O2)
  if(ARG_START)
    set(level Og)
  elseif(ARG_ONCE)
    set(level O1)
  endif()
  if(TRIREME_TOGETHER)
    trireme_patched(patched "${sources}")
    if(ARG_ONCE OR ARG_START)
      set(together TRIREME_PATCHED)
      if(ARG_BUT_PATCHED)
        set(together TRIREME_PATCHED_O2)
      endif()
      set_property(GLOBAL APPEND PROPERTY ${together} ${patched})
      list(REMOVE_ITEM sources ${patched})
    endif()
    trireme_formats(formats "${sources}")
    list(REMOVE_ITEM formats ${patched})
    set_property(GLOBAL APPEND PROPERTY TRIREME_FORMATS ${formats})
    list(REMOVE_ITEM sources ${formats})
    # A room's or a small folder's sources join those of others at their level, for which their unnamed namespaces have no name twice.
    foreach(room IN LISTS ARG_ROOMS_START ARG_ROOMS_O2)
      set(of_room ${sources})
      list(FILTER of_room INCLUDE REGEX "/${name}/${room}(/|\\.cpp$)")
      list(REMOVE_ITEM of_room ${patched})
      set(of_level Og)
      if(room IN_LIST ARG_ROOMS_O2)
        set(of_level O2)
      endif()
      set_property(GLOBAL APPEND PROPERTY TRIREME_FEW_${of_level} ${of_room})
      list(REMOVE_ITEM sources ${of_room})
    endforeach()
    list(LENGTH sources count)
    trireme_alone(alone "${sources}")
    list(REMOVE_ITEM sources ${alone})
    get_property(others GLOBAL PROPERTY TRIREME_ALONE)
    set_property(GLOBAL PROPERTY TRIREME_ALONE ${alone} ${others})
    if(count LESS 16 AND NOT ARG_LOOPS AND NOT ARG_DEFINES)
      set_property(GLOBAL APPEND PROPERTY TRIREME_FEW_${level} ${sources})
      set(sources "")
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY TRIREME_FOLDERS ${name})
  if(sources)
    add_library(trireme_${name} OBJECT ${sources})
    target_link_libraries(trireme_${name} PUBLIC trireme_options fmt::fmt Threads::Threads ${ARG_LIBS})
    target_compile_definitions(trireme_${name} PRIVATE ${ARG_DEFINES})
    if(NOT ARG_LOOPS)
      target_compile_options(trireme_${name} PRIVATE $<$<CONFIG:Release>:-${level}>)
      trireme_precompiled(trireme_${name} ${level})
    endif()
    trireme_folder_together(${name} 64 "${sources}")
  endif()
  if(tests AND TRIREME_TESTS)
    set_property(GLOBAL PROPERTY TRIREME_TESTS_OF_${name} "${tests}")
    set_property(GLOBAL PROPERTY TRIREME_DEFINES_OF_${name} "${ARG_DEFINES}")
    set_property(GLOBAL PROPERTY TRIREME_LIBS_OF_${name} "${ARG_LIBS}")
    if(ARG_TESTS_COMPUTE)
      set_property(GLOBAL PROPERTY TRIREME_COMPUTE_OF_${name} COMPUTE)
    endif()
  endif()
endfunction()

# What the tests include, precompiled. Its options are those of the test programs, or it could not serve them.
function(trireme_test_headers)
  file(WRITE ${CMAKE_BINARY_DIR}/test_headers.cpp "")
  add_library(trireme_test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cpp)
  target_link_libraries(trireme_test_headers PRIVATE trireme_options fmt::fmt Threads::Threads GTest::gtest_main GTest::gmock)
  set_target_properties(trireme_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(trireme_test_headers PRIVATE -fPIE $<$<CONFIG:Release>:-O0>)  # as programs have it
  if(TRIREME_SANITIZE)
    target_compile_options(trireme_test_headers PRIVATE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
  endif()
  target_precompile_headers(trireme_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h> <algorithm> <array>
    <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <optional> <random> <span> <string> <thread> <vector>)
endfunction()

# Compiles a program as the tests are, for a quick build.
function(trireme_test_precompiled name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  if(TRIREME_PRECOMPILE)
    if(NOT TARGET trireme_test_headers)
      trireme_test_headers()
    endif()
    target_precompile_headers(${name} REUSE_FROM trireme_test_headers)
    target_compile_definitions(${name} PRIVATE GTEST_HAS_PTHREAD=1)  # as GoogleTest's programs have; else the headers are of no use
  endif()
endfunction()

# A test program of GoogleTest: trireme_test_program(name TIMEOUT seconds [COST n] SOURCES ... LIBS ...). Each of its tests is a test
# of CTest, named "<name without _test>: ...", without what GoogleTest prints of a parameter, which may be bytes and addresses. In a release
# build the tests themselves are compiled for a quick build, many sources at a time: each stands in a namespace of its file's name, so that
# two may give the same name to things of their own.
#
# LIBRARY_FIRST: of an inline function that several objects have, the linker keeps the first copy, which would be that of the tests, compiled
# without optimisation, for all that the library calls too; with the library before them it is the library's, and tests that compute much take
# half the time.
#
# COMPUTE: its tests are compiled with -O1.
#
# COST: about the seconds of its longest tests. CTest begins with what costs most, so that no long test runs alone at the end.
function(trireme_test_program name)
  cmake_parse_arguments(ARG "LIBRARY_FIRST;COMPUTE" "TIMEOUT;COST" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  trireme_together(${name} 64)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE ${trireme_no_early_garbage})
  if(ARG_COMPUTE)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  else()
    trireme_test_precompiled(${name})
  endif()
  if(ARG_LIBRARY_FIRST)
    target_link_options(${name} PRIVATE LINKER:--whole-archive $<TARGET_FILE:trireme> LINKER:--no-whole-archive)
  endif()
  if(TRIREME_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${name} PRIVATE -fsanitize=${TRIREME_SANITIZE})
  endif()
  string(REGEX REPLACE "_test$" "" prefix ${name})
  set(cost "")
  if(ARG_COST)
    set(cost COST ${ARG_COST})
  endif()
  # What jobs measure of the machine they put into the user's cache folder; those of tests have their own.
  gtest_discover_tests(${name} TEST_PREFIX "${prefix}: " DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES PROPERTIES
                       TIMEOUT ${ARG_TIMEOUT} ${cost} ENVIRONMENT XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/test_cache)
endfunction()

# The test program of a folder links the whole library: a unit test may stand on anything below it. Where a folder is built for what
# this machine has, its tests know of it too.
function(trireme_folder_tests)
  get_property(folders GLOBAL PROPERTY TRIREME_FOLDERS)
  foreach(name IN LISTS folders)
    get_property(tests GLOBAL PROPERTY TRIREME_TESTS_OF_${name})
    if(tests)
      get_property(compute GLOBAL PROPERTY TRIREME_COMPUTE_OF_${name})
      trireme_test_program(${name}_test LIBRARY_FIRST ${compute} TIMEOUT 300 SOURCES ${tests} LIBS trireme)
      get_property(defines GLOBAL PROPERTY TRIREME_DEFINES_OF_${name})
      get_property(libs GLOBAL PROPERTY TRIREME_LIBS_OF_${name})
      if(defines)
        target_link_libraries(${name}_test PRIVATE ${libs})
        target_compile_definitions(${name}_test PRIVATE ${defines})
      endif()
    endif()
  endforeach()
endfunction()
