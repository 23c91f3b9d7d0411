#include "trireme/cost/crew_links.h"

#include <cstdlib>

namespace trireme {

LinkCost link_between_crews(int64_t apart, int64_t ranks_of_crew, const Rates& rates) {
  if (!rates.machine || rates.machine->levels.empty()) return rates.links.link;
  const int64_t devices = (std::abs(apart) + 1) * ranks_of_crew;
  const LinkLevel& last = rates.machine->levels.back();
  const LinkLevel& level = devices > last.devices ? last : rates.machine->level_of(devices);
  return {level.latency_s, level.bytes_per_s};
}

}  // namespace trireme
