// Which processing units of a host each of its ranks runs on. The only place that knows hwloc.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::launch {

// A physical core: its processing units (hyperthreads) by the system's numbers, and the NUMA node it belongs to.
struct Core {
  int node = 0;
  std::vector<int> units;
};

// Of this host, as far as the system lets us see them; empty where it tells nothing.
std::vector<Core> cores_of_host();
// Of a made-up one, in hwloc's notation: "package:2 core:8 pu:2".
std::vector<Core> cores_of(const std::string& synthetic);

// The units of each rank, of those allowed; no unit is given twice. Each rank gets a core for every thread, with all of
// its units, which leaves the communication thread the second one; where there are fewer cores than threads, a unit for
// every thread, those of one core together. A rank's cores are of one NUMA node where one still has enough. Empty when
// there are fewer allowed units than threads.
std::vector<std::vector<int>> assign_cores(std::vector<Core> cores, std::span<const int> allowed, size_t ranks,
                                           size_t threads);

// "0-3,8".
std::string units_text(std::vector<int> units);

}  // namespace trireme::launch
