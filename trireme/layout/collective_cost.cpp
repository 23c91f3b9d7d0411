#include "trireme/layout/collective_cost.h"

#include <algorithm>
#include <bit>

namespace trireme {

CollectiveWork among_all(int64_t ranks, double payload_bytes, int ways) {
  if (ranks < 2) return {};
  const auto p = static_cast<double>(ranks);
  return {.rounds = static_cast<double>(ways) * std::bit_width(static_cast<uint64_t>(ranks - 1)),
          .bytes = ways * (p - 1) / p * payload_bytes};
}

double seconds(const CollectiveWork& work, const LinkCost& link, const ReshardCosts& costs) {
  return costs.step_s + work.rounds * link.latency_s + work.bytes / link.bytes_per_s;
}

LinkCost slower(const LinkCost& a, const LinkCost& b) {
  return {.latency_s = std::max(a.latency_s, b.latency_s), .bytes_per_s = std::min(a.bytes_per_s, b.bytes_per_s)};
}

}  // namespace trireme
