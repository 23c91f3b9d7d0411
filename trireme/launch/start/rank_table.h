// Rank table: a JSON file that lists every rank's host and device, for processes that are started
// by hand or by a cluster's own tools. All values are strings:
//
//   {"version": "1.0", "server_count": "1", "status": "completed",
//    "server_list": [{"server_id": "10.0.0.5", "host_nic_ip": "reserve",
//                     "device": [{"device_id": "0", "device_ip": "10.0.0.5", "rank_id": "0"}]}]}
//
// server_id is the host's address. With several hosts the ranks follow the lexical order of
// server_id. host_nic_ip and device_ip are accepted and not used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

struct RankTable {
  struct Entry {  // of one rank
    std::string server;
    int device = 0;
    int local_rank = 0;   // among the ranks of its server
    int local_world = 1;  // of its server
  };
  std::vector<Entry> ranks;  // in order of rank
  int servers = 0;
};

// `where` names the text in errors (kInvalidArgument).
RankTable parse_rank_table(std::string_view text, const std::string& where);

}  // namespace trireme::launch
