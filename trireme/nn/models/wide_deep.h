// Wide & Deep (Cheng et al., 2016): rows of numbers and of ids. The wide part is linear in the numbers and in which ids
// there are; the deep part is an MLP over the numbers and a vector for each id. Their logits are added.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"
#include "trireme/nn/models/mlp.h"

namespace trireme::nn {

struct WideDeepConfig {
  int64_t dense = 0;         // numbers of a row
  int64_t ids = 0;           // ids of a row
  int64_t vocabulary = 256;  // of all ids together: columns of different meaning have different ids
  int64_t width = 16;        // of an id's vector
  std::vector<int64_t> hidden = {64, 32};
  int64_t classes = 2;
};

class WideDeep : public Module {
 public:
  explicit WideDeep(const WideDeepConfig& config);
  // "dense" f32[b,dense] and "ids" i32[b,ids] -> logits [b,classes].
  Fields forward_batch(const Fields& batch) override;

 private:
  WideDeepConfig config_;
  Group wide_, deep_;
  Embedding wide_ids_;  // the logits that an id brings
  Linear wide_dense_;
  Embedding table_;
  Mlp layers_;
};

}  // namespace trireme::nn
