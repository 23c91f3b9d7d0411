# One object library per folder of trireme/, its sources found by name: a new file is picked up by the
# next build. `x_test.cpp` beside `x.cpp` goes into the folder's test program.
#
#   trireme_folder(layout [LIBS pkg::target ...] [DEFINES X=1 ...])

add_library(trireme_options INTERFACE)
target_include_directories(trireme_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_compile_options(trireme_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CONFIG:Release>:-Wno-restrict>)  # false alarms of g++ 12 on std::string at -O3
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

function(trireme_folder name)
  cmake_parse_arguments(ARG "" "" "LIBS;DEFINES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)
    return()
  endif()
  add_library(trireme_${name} OBJECT ${sources})
  target_link_libraries(trireme_${name} PUBLIC trireme_options fmt::fmt Threads::Threads ${ARG_LIBS})
  target_compile_definitions(trireme_${name} PRIVATE ${ARG_DEFINES})
  set_property(GLOBAL APPEND PROPERTY TRIREME_FOLDERS ${name})
  if(tests AND TRIREME_TESTS)
    set_property(GLOBAL PROPERTY TRIREME_TESTS_OF_${name} "${tests}")
    set_property(GLOBAL PROPERTY TRIREME_DEFINES_OF_${name} "${ARG_DEFINES}")
    set_property(GLOBAL PROPERTY TRIREME_LIBS_OF_${name} "${ARG_LIBS}")
  endif()
endfunction()

# A test program of GoogleTest: trireme_test_program(name TIMEOUT seconds SOURCES ... LIBS ...). Each of its tests is a test
# of CTest, named "<name without _test>: ...". In a release build the tests themselves are compiled for a quick build.
function(trireme_test_program name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(TRIREME_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${name} PRIVATE -fsanitize=${TRIREME_SANITIZE})
  endif()
  string(REGEX REPLACE "_test$" "" prefix ${name})
  gtest_discover_tests(${name} TEST_PREFIX "${prefix}: " DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()

# The test program of a folder links the whole library: a unit test may stand on anything below it. Where a folder is built for what
# this machine has, its tests know of it too.
function(trireme_folder_tests)
  get_property(folders GLOBAL PROPERTY TRIREME_FOLDERS)
  foreach(name IN LISTS folders)
    get_property(tests GLOBAL PROPERTY TRIREME_TESTS_OF_${name})
    if(tests)
      trireme_test_program(${name}_test TIMEOUT 300 SOURCES ${tests} LIBS trireme)
      get_property(defines GLOBAL PROPERTY TRIREME_DEFINES_OF_${name})
      get_property(libs GLOBAL PROPERTY TRIREME_LIBS_OF_${name})
      if(defines)
        target_link_libraries(${name}_test PRIVATE ${libs})
        target_compile_definitions(${name}_test PRIVATE ${defines})
      endif()
    endif()
  endforeach()
endfunction()
