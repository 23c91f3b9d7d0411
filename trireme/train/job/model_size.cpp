#include "trireme/train/job/model_size.h"

#include "trireme/base/error.h"
#include "trireme/mesh/machine.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
double least_parameters(const JobConfig& config) {
  return model_of(config).least_parameters(fields_of(config));
}

void check_memory(const JobConfig& config, int64_t ranks, int64_t ranks_here) {
  const Machine host = Machine::this_host();
  const double memory = static_cast<double>(host.memory_bytes) * static_cast<double>(host.devices_per_host);
  const double parameters = least_parameters(config);
  const double bytes = 4 * parameters * static_cast<double>(ranks_here) / static_cast<double>(ranks);
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  require(bytes <= memory,
          "configuration: the model '{}' has at least {:.3g} parameters, {:.1f} GiB of f32 on this host, which has "
          "{:.1f} GiB; use a "
          "smaller model, or more hosts",
          config.model.kind, parameters, bytes / kGiB, memory / kGiB);
}

}  // namespace trireme
