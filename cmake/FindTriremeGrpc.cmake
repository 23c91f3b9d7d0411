# Target TriremeGrpc::grpc. Not find_package(gRPC), which asks for protobuf's compiler, nor pkg-config, which names eighty
# libraries: messages are bytes of our own, and a program that never calls gRPC does not load it. Installed, for programs
# that use the library.
find_library(TriremeGrpc_LIBRARY grpc++)
find_library(TriremeGrpc_CORE_LIBRARY grpc)
find_library(TriremeGrpc_PORT_LIBRARY gpr)
find_library(TriremeGrpc_SYNC_LIBRARY absl_synchronization)  # which gRPC's headers call
find_path(TriremeGrpc_INCLUDE_DIR grpcpp/grpcpp.h)
mark_as_advanced(TriremeGrpc_LIBRARY TriremeGrpc_CORE_LIBRARY TriremeGrpc_PORT_LIBRARY
                 TriremeGrpc_SYNC_LIBRARY TriremeGrpc_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TriremeGrpc REQUIRED_VARS TriremeGrpc_LIBRARY TriremeGrpc_CORE_LIBRARY
                                  TriremeGrpc_PORT_LIBRARY TriremeGrpc_SYNC_LIBRARY TriremeGrpc_INCLUDE_DIR)
if(TriremeGrpc_FOUND AND NOT TARGET TriremeGrpc::grpc)
  set(libraries "${TriremeGrpc_LIBRARY};${TriremeGrpc_CORE_LIBRARY};${TriremeGrpc_PORT_LIBRARY};${TriremeGrpc_SYNC_LIBRARY}")
  add_library(TriremeGrpc::grpc INTERFACE IMPORTED)
  set_target_properties(TriremeGrpc::grpc PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${TriremeGrpc_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--as-needed;${libraries};-Wl,--pop-state")
endif()
