// Roster: what ranks tell each other through the store before they can talk: addresses, and who
// shares a host.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/engine/engine.h"

namespace trireme::comm {

// The values that all ranks give under this name, in rank order. Rank 0 collects them and publishes
// the list, so that the store answers a number of requests proportional to the ranks, not to their
// square. Throws kTimeout naming the ranks that did not come.
std::vector<std::string> exchange(const WorldOptions& options, std::string_view name, std::string_view value);

// The list that rank 0 publishes, taken apart: before each value its length in eight hexadecimal digits. kComm when it
// is none.
std::vector<std::string> decode_list(std::string_view list);

// Throws kInvalidArgument, naming it, where another process has joined as this rank.
void claim_rank(const WorldOptions& options);

// A number, above 0, for these world ranks and this one of their groups that no other has; the members agree on it.
int agree_on_channel(const WorldOptions& options, const std::vector<int>& world_ranks, int number);

// How many ranks run on this rank's host, whether all of them are there and can share memory, and where
// each rank is.
struct Neighbours {
  int on_host = 1;
  bool can_share = true;
  std::vector<Whereabouts> peers = {};  // of all ranks
  std::vector<int> hosts = {};          // as in EngineOptions
};
Neighbours count_neighbours(const WorldOptions& options);

}  // namespace trireme::comm
