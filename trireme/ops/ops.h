// The public functions of the ops: what a model's code calls. Each adds a node to the graph its operands belong to,
// settles types and reports the user's mistakes; the rules of each op are in ops/<family>/<name>.cpp.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "trireme/op/build.h"
#include "trireme/op/structural.h"

namespace trireme {

// -- making values -----------------------------------------------------------------------------------------
Tensor full(Graph& graph, TensorType type, double value);
// Each element is its coordinate in dimension `dim`.
Tensor iota(Graph& graph, TensorType type, int dim);
// y[*,d] = 1 where ids[*] = d, else 0.
Tensor one_hot(const Tensor& ids, int64_t depth, DType dtype = DType::kF32);

// -- elementwise -------------------------------------------------------------------------------------------
// Two operands are of one type and broadcast as numpy's do: aligned at the last dimension, sizes equal or 1.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);  // bool, as the four below
Tensor less(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
// a where the bool condition holds, b elsewhere.
Tensor select(const Tensor& condition, const Tensor& a, const Tensor& b);

Tensor scale(const Tensor& x, double value);
Tensor add_scalar(const Tensor& x, double value);
Tensor pow_scalar(const Tensor& x, double value);
Tensor clamp(const Tensor& x, double low, double high);

Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor square(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);
// dy where y > 0; y may be relu's operand as well as its result.
Tensor relu_grad(const Tensor& y, const Tensor& dy);
Tensor silu_grad(const Tensor& x, const Tensor& dy);
// By erf, or GPT-2's approximation by tanh ("gelu_new").
Tensor gelu(const Tensor& x, bool approximate = false);
Tensor gelu_grad(const Tensor& x, const Tensor& dy, bool approximate = false);

Tensor operator-(const Tensor& x);
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& x, double value);
Tensor operator+(double value, const Tensor& x);
Tensor operator-(const Tensor& x, double value);
Tensor operator-(double value, const Tensor& x);
Tensor operator*(const Tensor& x, double value);
Tensor operator*(double value, const Tensor& x);
Tensor operator/(const Tensor& x, double value);
Tensor operator/(double value, const Tensor& x);

// x itself when it has the element type already.
Tensor cast(const Tensor& x, DType dtype);

// -- reductions --------------------------------------------------------------------------------------------
// Over the given dimensions (negative ones count from the end), over all when none are given. Reduced
// dimensions go, or stay with size 1.
Tensor reduce_sum(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);
Tensor reduce_max(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);
Tensor reduce_min(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);
Tensor mean(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);
// The sum of all squares: f32[], or f64[] of an f64 x.
Tensor square_sum(const Tensor& x);
// The same of an f32 x, exact and therefore the same bits however x is cut: its digits, f64[12], which are added (add)
// over tensors; and the value of such a sum of digits, f32[].
Tensor exact_square_sum(const Tensor& x);
Tensor total_of_digits(const Tensor& digits);
// Sums x to a shape that broadcasts to x's: the gradient of a broadcast.
Tensor sum_to(const Tensor& x, const Shape& shape);
// The first index of the largest element, as i32; the dimension goes.
Tensor argmax(const Tensor& x, int dim = -1);
// Sums of all elements up to each one; from each one on when reversed.
Tensor cumsum(const Tensor& x, int dim, bool reverse = false);

// -- shapes ------------------------------------------------------------------------------------------------
Tensor reshape(const Tensor& x, const Shape& shape);
// One size may be -1: it follows from the others.
Tensor reshape(const Tensor& x, const std::vector<int64_t>& sizes);
Tensor reshape(const Tensor& x, std::initializer_list<int64_t> sizes);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
// Dimension i of the result is dimension perm[i] of x.
Tensor transpose(const Tensor& x, std::vector<int64_t> perm);
Tensor swap_dims(const Tensor& x, int a, int b);
// The box of x that begins at `starts` and has the sizes `sizes`; or a range of one dimension.
Tensor slice(const Tensor& x, std::vector<int64_t> starts, std::vector<int64_t> sizes);
Tensor slice(const Tensor& x, int dim, int64_t start, int64_t size);
// Equal parts of a dimension, or parts of the given sizes.
std::vector<Tensor> split(const Tensor& x, int dim, int parts);
std::vector<Tensor> split(const Tensor& x, int dim, const std::vector<int64_t>& sizes);
Tensor concat(const std::vector<Tensor>& tensors, int dim);
// Adds elements of `value` before and after x in each dimension.
Tensor pad(const Tensor& x, std::vector<int64_t> before, std::vector<int64_t> after, double value = 0);
Tensor fill_beyond(const Tensor& x, int dim, int64_t size);  // zero where the coordinate in `dim` is `size` or more

// -- products ----------------------------------------------------------------------------------------------
// y[*,m,n] = sum_k a[*,m,k] b[*,k,n]; b without batches serves all; transposes act on the last two dimensions.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);
// w[k,n] = sum over all leading dimensions of x[*,k] y[*,n].
Tensor linear_weight_grad(const Tensor& x, const Tensor& y);
// y[*,p,n] = sum_k x[*,k] w[k,p,n]: several linear maps of one x.
Tensor multi_linear(const Tensor& x, const Tensor& w);

// -- probabilities and losses --------------------------------------------------------------------------------
// Over the last dimension, which cannot be cut.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
// logits[*,v] and labels[*] (i32 or i64, in 0..v-1) -> loss[*] in nats, f32 (f64 for f64 logits). Positions with the
// label `ignore_index` have loss 0. With label_smoothing s the target is (1-s) onehot + s/v.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index, double label_smoothing = 0);
// The same loss of plain ops, each of which lets v be cut (vocabulary parallelism, Shoeybi et al., 2019): the largest
// logit and the sum of exponentials are reduced over the ranks, and the logits stay where they are.
Tensor cross_entropy_in_parts(const Tensor& logits, const Tensor& labels);
// y[*] = x[*, ids[*]]; 0 where ids is outside.
Tensor pick(const Tensor& x, const Tensor& ids);
// x, through which no gradient flows back.
Tensor stop_gradient(const Tensor& x);
struct MeanLossOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
// The mean of cross_entropy over all positions, a scalar in nats. Where ignored labels are not to count in it:
// cross_entropy_counted (ops/loss/counted_loss.h).
Tensor cross_entropy_mean(const Tensor& logits, const Tensor& labels, const MeanLossOptions& options = {});
// The mean of (x - target)^2, a scalar.
Tensor mse(const Tensor& x, const Tensor& target);
// Of each element, with e = x - target: e^2/2 where |e| <= delta, else delta (|e| - delta/2).
Tensor huber(const Tensor& x, const Tensor& target, double delta = 1);

// -- randomness ----------------------------------------------------------------------------------------------
// Zero with probability p, else x / (1-p). `step` is i64[]: the mask is a function of seed, stream, step and the place
// of the element in the whole tensor, so it does not depend on how x is cut.
Tensor dropout(const Tensor& x, const Tensor& step, double p, int64_t seed, int64_t stream);

// -- lookups -------------------------------------------------------------------------------------------------
// table[v,d] and ids[*] (i32 or i64, in 0..v-1) -> [*,d]. A cut vocabulary gives a partial sum.
Tensor embedding(const Tensor& table, const Tensor& ids);
// The gradient of a table with `vocabulary` rows: row v is the sum of dy[*,d] over the positions with id v.
Tensor embedding_grad(const Tensor& ids, const Tensor& dy, int64_t vocabulary);
// A table for each batch: table[b,v,d] and ids[b,n] -> [b,n,d]; and ids[b,n], x[b,n,d] -> [b,rows,d], whose row v is
// the sum of x over the positions with id v. Batches may be cut, rows may not.
Tensor gather_rows(const Tensor& table, const Tensor& ids);
Tensor scatter_rows(const Tensor& ids, const Tensor& x, int64_t rows);

// -- normalisation -------------------------------------------------------------------------------------------
// Over the last dimension, which cannot be cut. The statistics are f32 (f64 for f64) and have x's leading dimensions.
struct Normalised {
  Tensor y, mean, rstd;  // rms_norm has no mean
};
// y = gamma (x - mean) rstd + beta with gamma[d], beta[d] and rstd = 1 / sqrt(variance + eps).
Normalised layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);
// y = gamma x rstd with rstd = 1 / sqrt(mean of squares + eps).
Normalised rms_norm(const Tensor& x, const Tensor& gamma, double eps = 1e-6);

// The sums over all positions of x[*,c] and of its squares, f64[2,c]. Cut positions give partial sums.
Tensor channel_sums(const Tensor& x);
// Mean and (biased) variance of `count` positions from such sums, and the running statistics after them: old + momentum
// (new - old), of the unbiased variance. All are f32[c].
struct BatchStatistics {
  Tensor mean, var, running_mean, running_var;
};
BatchStatistics batch_statistics(const Tensor& sums, const Tensor& running_mean, const Tensor& running_var,
                                 int64_t count, double momentum = 0.1);
struct BatchNormOptions {
  double eps = 1e-5;
  bool relu = false;
  Tensor residual = {};  // of x's type
};
// Over all positions of x[*,c]: y = gamma (x - mean) / sqrt(var + eps) + beta, + residual, then relu. gamma, beta, mean
// and var are f32[c] (f64 for f64).
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& mean, const Tensor& var,
                  const BatchNormOptions& options = {});
// The same with the statistics of x itself over the whole batch, however it is cut (Ioffe and Szegedy, 2015; over ranks
// it is synchronised: sums of c channels are reduced once forward and once backward), and the running statistics after
// it.
struct BatchNormTraining {
  Tensor y, running_mean, running_var;
};
BatchNormTraining batch_norm_training(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                      const Tensor& running_mean, const Tensor& running_var, double momentum,
                                      const BatchNormOptions& options = {});

// -- attention -----------------------------------------------------------------------------------------------
// Rotary position embedding of x[b,s,h,d], d even: elements i and i+d/2 of a head are a pair that is turned by the
// angle s theta^(-2i/d), s being the position in the whole tensor. Batch, positions and heads may be cut.
Tensor rotary(const Tensor& x, double theta = 10000);
// The same where s counts from the number `at` on: of the next tokens of a sequence.
Tensor rotary_at(const Tensor& x, const Tensor& at, double theta = 10000);
struct AttentionOptions {
  bool causal = false;  // query i sees keys 0 .. i + t - s
  double scale = 0;     // of the scores; 0: 1/sqrt(d)
};
struct Attention {
  Tensor out;  // [b,s,h,d]
  Tensor lse;  // [b,h,s]: ln of the sum of exp(scores), f32 (f64 for f64); what merges attention over parts of the keys
};
// softmax(scale q k^T) v by head: q is [b,s,h,d], k and v are [b,t,g,d] with h a multiple of g (grouped queries). Batch
// and key heads may be cut.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});
Attention attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});
// Causal attention of the next s tokens of a sequence: q is [b,s,h,d], k and v are [b,s,g,d], and keys and values
// [b,t,g,d] those of all tokens, of which the first `at`, a number, are there. Gives keys and values with these tokens'
// too. Key heads may be cut. Has no gradient.
struct CachedAttention {
  Tensor out;           // [b,s,h,d]
  Tensor keys, values;  // [b,t,g,d]
};
CachedAttention cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& keys,
                                 const Tensor& values, const Tensor& at);

// -- convolution and pooling ---------------------------------------------------------------------------------
// Images are [n,h,w,c]. Strides and dilations are [h,w]; padding is [h,w], the same on both sides, or
// [top,bottom,left,right]. The batch, channels and positions may be cut; a rank's windows reach into its neighbours'
// positions at most, and positions whose padding does not count in a mean are not cut.
struct ConvOptions {
  std::vector<int64_t> stride = {1, 1};
  std::vector<int64_t> padding = {0, 0};
  std::vector<int64_t> dilation = {1, 1};
  int64_t groups = 1;
};
// x[n,h,w,i] and weight[o,kh,kw,i/groups] -> [n,h',w',o], h' = (h + padding - dilation (kh-1) - 1) / stride + 1.
Tensor conv2d(const Tensor& x, const Tensor& weight, const ConvOptions& options = {});
// Its gradients, from dy[n,h',w',o]; `input_size` is [h,w] and `kernel_size` [kh,kw].
Tensor conv2d_grad_input(const Tensor& weight, const Tensor& dy, const ConvOptions& options,
                         std::array<int64_t, 2> input_size);
Tensor conv2d_grad_weight(const Tensor& x, const Tensor& dy, const ConvOptions& options,
                          std::array<int64_t, 2> kernel_size);

struct PoolOptions {
  std::vector<int64_t> kernel = {2, 2};
  std::vector<int64_t> stride = {2, 2};
  std::vector<int64_t> padding = {0, 0};  // smaller than the kernel
  bool count_padding = true;              // of avg_pool2d: padded zeros count in the mean
};
Tensor max_pool2d(const Tensor& x, const PoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const PoolOptions& options = {});

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
// The same of the rows of a table that were looked up: count [rows, 1] says how often. Other rows stay, and their
// means.
AdamUpdate lazy_adam_update(const AdamOperands& in, const Tensor& count, const AdamOptions& options = {});
// LAMB: Adam's direction with decoupled decay, scaled by the ratio of the norms of param and direction, each of the
// whole tensor.
AdamUpdate lamb_update(const AdamOperands& in, const AdamOptions& options = {});
// min(1, max_norm / (sqrt(norm_squared) + 1e-6)): the `scale` that clips gradients with that sum of squares.
Tensor clip_scale(const Tensor& norm_squared, double max_norm);

// -- collectives on the pieces of ranks ----------------------------------------------------------------------
// For models that are cut by hand; the compiler inserts its own. Bool tensors are refused, and reductions other than
// "sum", "max" and "min". The group stands in the attributes: over_axes(mesh, "tp"), with what the collective needs
// besides set after. Gradients take each rank's value as a variable of its own.
CollectiveAttrs over_axes(const Mesh& mesh, std::string_view axes);
// Groups of ranks by number, all of one size from 2 on. A rank that none of them lists keeps its operand as the result;
// where the result has another shape, every rank must be listed.
CollectiveAttrs over_ranks(const std::vector<std::vector<int64_t>>& groups);
std::vector<Tensor> all_reduce(std::span<const Tensor> x, const CollectiveAttrs& attrs);
Tensor all_gather(const Tensor& x, const CollectiveAttrs& attrs);      // joins the pieces along `dim`
Tensor reduce_scatter(const Tensor& x, const CollectiveAttrs& attrs);  // the own piece, along `dim`, of the sum
// Of several tensors of one element type, in one operation.
std::vector<Tensor> all_gather(std::span<const Tensor> x, const CollectiveAttrs& attrs);
std::vector<Tensor> reduce_scatter(std::span<const Tensor> x, const CollectiveAttrs& attrs);
Tensor all_to_all(const Tensor& x, const CollectiveAttrs& attrs);  // cuts along `dim`, joins along `from_dim`
Tensor ring_shift(const Tensor& x, const CollectiveAttrs& attrs);  // that of the member `shift` places before
std::vector<Tensor> broadcast(std::span<const Tensor> x, const CollectiveAttrs& attrs);  // rank `root`'s x
Tensor shard_slice(const Tensor& x, const CollectiveAttrs& attrs);  // the own piece along `dim`; nothing is sent

// The pieces of the group lie along `dim` in equal blocks, one after the other. Rank k gets positions [offset + k step,
// + length) of it, with `fill` outside the whole; no further than its neighbours' blocks reach.
struct WindowOptions {
  int dim = 0;
  int64_t offset = 0;
  int64_t step = 0;
  int64_t length = 0;
  double fill = 0;
};
Tensor take_windows(const Tensor& x, const CollectiveAttrs& group, const WindowOptions& options);
// x with the last `before` positions of the rank before it and the first `after` of the one after it; zeros at the
// ends. One dimension after the other, the corners come from the diagonal neighbours.
Tensor halo(const Tensor& x, const CollectiveAttrs& group, int dim, int64_t before, int64_t after);
// x[i] of the group's rank k becomes result i of its rank to[i][k]; -1: of none. Zeros where nothing comes.
std::vector<Tensor> neighbor_exchange(std::span<const Tensor> x, const CollectiveAttrs& group,
                                      const std::vector<std::vector<int64_t>>& to);

// Between plans that run side by side, each on ranks of its own (op/message.h): x goes to the same rank of another
// crew, where a recv of its type has the same tag.
void send(const Tensor& x, int64_t to_crew, int64_t tag);
Tensor recv(Graph& graph, TensorType type, int64_t from_crew, int64_t tag);

}  // namespace trireme
