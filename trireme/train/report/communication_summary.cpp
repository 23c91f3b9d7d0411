#include "trireme/train/report/communication_summary.h"

#include <fmt/format.h>

#include <vector>

namespace trireme {

CommunicationSummary over_ranks(comm::World* world, const CommunicationTime& mine) {
  if (world == nullptr) return {mine, mine, 0};
  std::vector<double> all(3 * static_cast<size_t>(world->size()));
  double own[] = {mine.busy_s, mine.exposed_s, mine.begin_s};
  world->all()
      .all_gather({reinterpret_cast<std::byte*>(own), {DType::kF64, {3}}},
                  {reinterpret_cast<std::byte*>(all.data()), {DType::kF64, {3 * world->size()}}})
      .wait();
  CommunicationSummary out;
  for (int rank = 0; rank < world->size(); ++rank) {
    const double* its = &all[3 * static_cast<size_t>(rank)];
    const CommunicationTime time{its[0], its[1], its[2]};
    out.mean += time;
    if (rank > 0 && time.exposed_s <= out.most_exposed.exposed_s) continue;
    out.most_exposed = time;
    out.most_exposed_rank = rank;
  }
  out.mean /= world->size();
  return out;
}

std::string to_string(const CommunicationSummary& summary) {
  return fmt::format("{:.1f} ms a step, {:.0f} % hidden; most exposed on rank {}: {:.1f} ms", summary.mean.busy_s * 1e3,
                     summary.mean.hidden_percent(), summary.most_exposed_rank, summary.most_exposed.exposed_s * 1e3);
}

}  // namespace trireme
