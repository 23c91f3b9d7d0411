# Target TriremeDnnl::dnnl. Not find_package(dnnl): Debian's package file asks for OpenCL headers that a CPU build does
# not need (docs/decisions/0002-onednn-without-its-cmake-package.md). Installed, for programs that use the library.
find_library(TriremeDnnl_LIBRARY dnnl)
find_path(TriremeDnnl_INCLUDE_DIR dnnl.hpp)
mark_as_advanced(TriremeDnnl_LIBRARY TriremeDnnl_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TriremeDnnl REQUIRED_VARS TriremeDnnl_LIBRARY TriremeDnnl_INCLUDE_DIR)
if(TriremeDnnl_FOUND AND NOT TARGET TriremeDnnl::dnnl)
  add_library(TriremeDnnl::dnnl UNKNOWN IMPORTED)
  set_target_properties(TriremeDnnl::dnnl PROPERTIES IMPORTED_LOCATION "${TriremeDnnl_LIBRARY}"
                                                     INTERFACE_INCLUDE_DIRECTORIES "${TriremeDnnl_INCLUDE_DIR}")
endif()
