// The public functions of the ops: what a model's code calls. Each adds a node to the graph its operands
// belong to, settles types and raises the user's mistakes; the rules of each op are in ops/<name>.cpp.
#pragma once

#include <optional>
#include <vector>

#include "trireme/op/build.h"
#include "trireme/op/structural.h"

namespace trireme {

// -- making values -----------------------------------------------------------------------------------------
Tensor full(Graph& graph, TensorType type, double value);

// -- products ----------------------------------------------------------------------------------------------
// y[*,m,n] = sum_k a[*,m,k] b[*,k,n]; b without batches serves all; transposes act on the last two dimensions.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);
// w[k,n] = sum over all leading dimensions of x[*,k] y[*,n].
Tensor linear_weight_grad(const Tensor& x, const Tensor& y);

// -- probabilities and losses --------------------------------------------------------------------------------
// Over the last dimension, which cannot be cut.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
// logits[*,v] and labels[*] (i32 or i64, in 0..v-1) -> loss[*] in nats, f32 (f64 for f64 logits). Positions with the
// label `ignore_index` have loss 0. With label_smoothing s the target is (1-s) onehot + s/v.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index = -100,
                     double label_smoothing = 0);

// -- optimizer updates ---------------------------------------------------------------------------------------
// Elementwise, each over tensors of one floating type and any shape. Scalars: lr is the learning rate; step the
// number of this step as i64[], from 1; scale multiplies the gradient first (clipping, loss scaling; pass 1 for
// none). Each returns the tensors that replace the operands of the same names.
struct SgdOptions {
  double momentum = 0.9;
  double weight_decay = 0;  // added to the gradient, times param
  bool nesterov = false;
  double dampening = 0;
};
struct SgdOperands {
  Tensor param, grad, velocity, lr, step, scale;
};
struct SgdUpdate {
  Tensor param, velocity;
};
// torch.optim.SGD with momentum. Step 1 sets the velocity to the gradient.
SgdUpdate sgd_update(const SgdOperands& in, const SgdOptions& options = {});
// torch.optim.SGD without momentum: param - lr (scale grad + weight_decay param).
Tensor sgd_plain_update(const Tensor& param, const Tensor& grad, const Tensor& lr, const Tensor& scale,
                        double weight_decay = 0);

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW: the decay multiplies param; false: Adam, it is added to the gradient
};
struct AdamOperands {
  Tensor param, grad, m, v, lr, step, scale;
};
struct AdamUpdate {
  Tensor param, m, v;
};
// torch.optim.Adam and AdamW; m and v start at zero.
AdamUpdate adam_update(const AdamOperands& in, const AdamOptions& options = {});

}  // namespace trireme
