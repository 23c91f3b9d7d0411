// Job: this process as one rank of a job. `Job::init` finds out how the program was started (alone, by trireme,
// torchrun, mpirun, srun, Kubernetes or with a rank table: launch/start/start.h), joins the other ranks, and makes the
// rank's compute threads. docs/guide/03_starting_a_job.md shows each way.
#pragma once

#include <memory>
#include <string>

#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"

namespace trireme {

struct JobOptions {
  std::string transport = "auto";  // auto | shm | ucx | mpi
  int threads = 0;                 // compute threads of this rank; 0: TRIREME_THREADS, else cores over ranks
  bool insecure = false;           // ranks on several hosts may meet without a secret; warns at every start
};

// Compute threads of a rank for which this number was asked, 0 for none given: TRIREME_THREADS, else the cores that
// this process may run on over the ranks of this host.
int compute_threads(int asked, int local_ranks);

class Job {
 public:
  // Call once, first thing in main. From then on an error that nobody catches is reported to the launcher (or printed,
  // when there is none) and ends the program with its exit code.
  static Job init(int argc, char** argv, const JobOptions& options = {});
  explicit Job(const JobOptions& options);
  Job(Job&&) noexcept;
  ~Job();

  // The job this process has joined; a job of one rank when `init` was not called.
  static Job& current();

  int rank() const;
  int size() const;
  comm::World* world() const;  // null with one rank
  ThreadPool& pool() const;
  const std::string& command() const;  // as it was typed

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
