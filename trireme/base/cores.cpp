#include "trireme/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <thread>

namespace trireme {

Cores allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Cores cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) {  // more than the set has room for
    cores.resize(std::max(1U, std::thread::hardware_concurrency()));
    std::iota(cores.begin(), cores.end(), 0);
  }
  return cores;
}

bool run_on(const Cores& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) return false;
    CPU_SET(static_cast<size_t>(core), &set);
  }
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace trireme
