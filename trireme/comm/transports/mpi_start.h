// MPI as a way for ranks that mpirun started to find each other, for transports that are not MPI's.
#pragma once

#include <string>

namespace trireme::comm {

// Whether this build has MPI.
bool has_mpi();

// Rank 0's text, on every rank of MPI's world. Collective. MPI is started for it and ended again,
// so a program that uses MPI itself starts it before. Throws kUnsupported in a build without MPI.
std::string from_rank_0_by_mpi(const std::string& text);

}  // namespace trireme::comm
