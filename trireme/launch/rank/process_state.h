// Whether a process runs, sleeps or is stopped, according to the kernel.
#pragma once

#include <string>

namespace trireme::launch {

// What the kernel says of a process.
struct ProcessState {
  char state = '?';  // R running, S sleeping, D waiting for a disk, T stopped, ...
  double cpu_s = 0;  // of all its threads but the one that only moves messages
  bool known = false;
};
ProcessState state_of(int pid);

// What stands in a file of /proc; "" where it cannot be read.
std::string proc_text(const std::string& path);

}  // namespace trireme::launch
