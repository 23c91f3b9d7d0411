#include "trireme/launch/start/cores.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <map>
#include <memory>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Topology new_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  return Topology(topology);
}

int node_of(hwloc_topology_t topology, hwloc_const_cpuset_t units) {
  const int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int node = 0; node < nodes; ++node) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(node));
    if (hwloc_bitmap_intersects(object->cpuset, units) != 0) return node;
  }
  return 0;
}

std::vector<Core> cores_of(hwloc_topology_t topology) {
  // Some virtual machines tell of no cores: then each unit counts as one.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Core> out;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, type, core)) != nullptr;) {
    Core& made = out.emplace_back();
    made.node = node_of(topology, core->cpuset);
    for (int unit = hwloc_bitmap_first(core->cpuset); unit >= 0; unit = hwloc_bitmap_next(core->cpuset, unit)) {
      made.units.push_back(unit);
    }
  }
  return out;
}

}  // namespace

std::vector<Core> cores_of_host() {
  const Topology topology = new_topology();
  if (!topology || hwloc_topology_load(topology.get()) != 0) return {};
  return cores_of(topology.get());
}

std::vector<Core> cores_of(const std::string& synthetic) {
  const Topology topology = new_topology();
  require(topology && hwloc_topology_set_synthetic(topology.get(), synthetic.c_str()) == 0 &&
              hwloc_topology_load(topology.get()) == 0,
          "'{}' describes no machine; write it like 'package:2 core:8 pu:2'", synthetic);
  return cores_of(topology.get());
}

std::vector<std::vector<int>> assign_cores(std::vector<Core> cores, std::span<const int> allowed, size_t ranks,
                                           size_t threads) {
  size_t units = 0;
  for (Core& core : cores) {
    std::erase_if(core.units,
                  [&](int unit) { return std::find(allowed.begin(), allowed.end(), unit) == allowed.end(); });
    units += core.units.size();
  }
  std::erase_if(cores, [](const Core& core) { return core.units.empty(); });
  if (ranks * threads > units) return {};
  const bool whole_cores = ranks * threads <= cores.size();
  std::map<int, std::vector<std::vector<int>>> free;  // by node: what a thread gets
  for (const Core& core : cores) {
    if (whole_cores)
      free[core.node].push_back(core.units);
    else
      for (const int unit : core.units) free[core.node].push_back({unit});
  }
  std::vector<std::vector<int>> out(ranks);
  for (std::vector<int>& rank : out) {
    const auto fitting = std::ranges::find_if(free, [&](const auto& node) { return node.second.size() >= threads; });
    auto node = fitting != free.end() ? fitting : free.begin();
    for (size_t taken = 0; taken < threads; ++taken) {
      while (node->second.empty()) ++node;
      rank.insert(rank.end(), node->second.front().begin(), node->second.front().end());
      node->second.erase(node->second.begin());
    }
    std::ranges::sort(rank);
  }
  return out;
}

std::string units_text(std::vector<int> units) {
  std::ranges::sort(units);
  std::string out;
  for (size_t i = 0; i < units.size();) {
    size_t end = i + 1;
    while (end < units.size() && units[end] == units[end - 1] + 1) ++end;
    if (!out.empty()) out += ",";
    out += end - i > 1 ? fmt::format("{}-{}", units[i], units[end - 1]) : fmt::format("{}", units[i]);
    i = end;
  }
  return out;
}

}  // namespace trireme::launch
