// The version of the library and how this copy of it was built: what `trireme --version` prints.
#pragma once

#include <string_view>

namespace trireme {

// CMake reads the version from this line.
inline constexpr std::string_view kVersion = "0.1.0";

struct BuildInfo {
  std::string_view commit;    // short hash, or "unknown" when it was not built from a repository
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view options;   // "Release, ucx 1.13.1, mpi 3.1"
  std::string_view kernels;   // digest of the sources of the CPU's kernels, "3f09a1c2"
};

const BuildInfo& build_info();

}  // namespace trireme
