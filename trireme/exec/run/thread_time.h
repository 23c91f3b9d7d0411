// How long this thread has computed: time that others use on its core does not count.
#pragma once

#include <time.h>

namespace trireme {

inline double thread_worked_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace trireme
