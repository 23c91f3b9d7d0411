// Published models as settings of the kinds that there are (nn/model_spec.h), by name, with the parameter counts
// that their authors give.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/train/job/config.h"

namespace trireme {

struct PublishedModel {
  std::string_view name;               // "gpt3-175b"
  std::vector<std::string_view> keys;  // of [model] and of the shape of [data]: "model.kind=gpt"
  int64_t published = 0;               // parameters; rounded as its authors rounded them where `is_rounded`
  bool is_rounded = false;
  std::string_view source;  // of the sizes
};

// By family, from small to large.
std::span<const PublishedModel> published_models();
// Null: there is none of that name.
const PublishedModel* find_published_model(std::string_view name);

// The model on made-up data of its shape. Throws kInvalidArgument with the likely name for one that there is not.
void set_published_model(JobConfig& config, std::string_view name);

struct ModelCounts {
  int64_t parameters = 0;    // that are trained, and running statistics are not
  double forward_flops = 0;  // of one sample
  int64_t positions = 1;     // of a sample: tokens, for models that predict one each
};
// Of the graph that is traced for one sample; nothing of its size is allocated.
ModelCounts count(const JobConfig& config);

}  // namespace trireme
