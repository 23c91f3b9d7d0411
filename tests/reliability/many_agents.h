// Many agents of a scheduler in one process: streams of one loop, four to a connection, which is what the scheduler
// allows. Each proves the job's secret, reports its workers, and reads what it is told until its rank is final; then
// its stream stays open.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/comm/stores/hmac.h"
#include "trireme/launch/cluster/cluster.h"

namespace trireme::cli {

// The first report of a node. With one worker each, eight with numbers that follow each other are on one host.
launch::NodeReport node(int number, int world, int workers = 1);

class ManyAgents {
 public:
  ManyAgents(int count, int workers_each, uint16_t port, const comm::Secret& secret);
  ~ManyAgents();
  ManyAgents(const ManyAgents&) = delete;
  ManyAgents& operator=(const ManyAgents&) = delete;

  // Until all know their ranks, or the time is over. The first rank of each, -1 where it is not known.
  std::vector<int> register_all(std::chrono::seconds limit);
  int64_t retries() const;  // streams that ended before, and were begun again

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::cli
