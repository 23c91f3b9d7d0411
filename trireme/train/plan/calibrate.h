// Calibration: measures the ops, memory and links of this machine on training steps of small models, and makes a
// machine's file that plans use.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/cost/fit_rates.h"
#include "trireme/exec/disk/disk_rate.h"
#include "trireme/mesh/machine.h"

namespace trireme {

struct Calibration {
  Machine machine;
  std::vector<OpSample> samples;  // that the machine's rates of ops are fitted to
  std::optional<DiskRate> disk;   // of this rank, where a directory is given
};

// The disk is measured where `directory` is given, by `bytes` of each rank, all at the same time; the slower of writing
// and reading, on the slowest rank, is the machine's rate.
struct DiskToMeasure {
  std::string directory = {};
  int64_t bytes = int64_t{512} << 20;
};

// Every rank runs the same steps by itself at the same time, so that they share the memory as ranks of a job do; the
// first rank's times count. The machine has a device for each core, or each rank where those are more, and one level of
// links: measured between the ranks, or of one rank what a host usually has. Takes a quarter of a minute on an idle
// machine. Collective; a null world is one rank. `tell` is called with what is measured next.
Calibration calibrate(comm::World* world, ThreadPool& pool, const std::function<void(std::string_view)>& tell = {},
                      const DiskToMeasure& disk = {});

}  // namespace trireme
