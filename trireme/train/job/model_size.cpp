#include "trireme/train/job/model_size.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/mesh/machine.h"

namespace trireme {
namespace {

double of_language_model(const JobConfig& config) {
  const auto& m = config.model;
  const auto width = static_cast<double>(m.width);
  const auto tokens = static_cast<double>(m.vocabulary);
  const double experts = static_cast<double>(std::max<int64_t>(1, m.experts));
  const auto layers = static_cast<double>(m.layers);
  if (m.kind == "gpt")
    return layers * width * width * (4 + 8 * experts) + width * (tokens + static_cast<double>(config.data.seq));
  const double shared = m.kv_heads == 0 ? 1 : static_cast<double>(m.kv_heads) / static_cast<double>(m.heads);
  const double hidden = m.mlp_width == 0 ? 8 * width / 3 : static_cast<double>(m.mlp_width);
  return layers * width * (width * (2 + 2 * shared) + 3 * hidden * experts) + width * tokens * (m.tied ? 1 : 2);
}

double of_mlp(const JobConfig& config) {
  double in = 1;
  for (const int64_t size : config.data.image) in *= static_cast<double>(size);
  double out = 0;
  for (const int64_t size : config.model.hidden) {
    out += in * static_cast<double>(size);
    in = static_cast<double>(size);
  }
  return out + in * static_cast<double>(config.model.classes);
}

double of_resnet(const JobConfig& config) {
  double width = static_cast<double>(config.model.stem);
  double out = 0;
  for (const int64_t blocks : config.model.blocks) {
    out += 17 * width * width *
           static_cast<double>(blocks);  // 1 x 1 from four times the width and back to it, and 3 x 3 between
    width *= 2;
  }
  return out;
}

}  // namespace

double least_parameters(const JobConfig& config) {
  if (!predicts_classes(config)) return of_language_model(config);
  if (config.model.kind == "mlp") return of_mlp(config);
  return config.model.kind == "resnet" ? of_resnet(config) : 0;
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
