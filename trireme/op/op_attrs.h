// Attributes that several ops have, or kernels of several fields. All other attribute structs are in the op's own file,
// where kernels read a field by its name (Attrs::get).
#pragma once

#include <string>
#include <vector>

#include "trireme/ir/attrs.h"
#include "trireme/tensor/shape.h"

namespace trireme {

struct MatMulAttrs {
  bool transpose_a = false;
  bool transpose_b = false;
  static constexpr auto fields() {
    return std::tuple{field("transpose_a", &MatMulAttrs::transpose_a), field("transpose_b", &MatMulAttrs::transpose_b)};
  }
};

struct CrossEntropyAttrs {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  static constexpr auto fields() {
    return std::tuple{field("ignore_index", &CrossEntropyAttrs::ignore_index),
                      field("label_smoothing", &CrossEntropyAttrs::label_smoothing)};
  }
};

struct EmbeddingGradAttrs {
  int64_t vocabulary = 0;  // rows of the whole table
  static constexpr auto fields() { return std::tuple{field("vocabulary", &EmbeddingGradAttrs::vocabulary)}; }
};

struct EmbeddingGradRowsAttrs {
  int64_t vocabulary = 0;  // rows of the whole table
  int64_t rows = 0;        // places of the list
  static constexpr auto fields() {
    return std::tuple{field("vocabulary", &EmbeddingGradRowsAttrs::vocabulary),
                      field("rows", &EmbeddingGradRowsAttrs::rows)};
  }
};

struct SquareSumRowsAttrs {
  int64_t table = 0;  // rows of the table that the list stands for
  static constexpr auto fields() { return std::tuple{field("table", &SquareSumRowsAttrs::table)}; }
};

struct ScatterRowsAttrs {
  int64_t rows = 0;  // of the table
  static constexpr auto fields() { return std::tuple{field("rows", &ScatterRowsAttrs::rows)}; }
};

// layer_norm and rms_norm.
struct NormAttrs {
  double eps = 1e-5;
  static constexpr auto fields() { return std::tuple{field("eps", &NormAttrs::eps)}; }
};

// batch_norm and its gradients.
struct BatchNormAttrs {
  double eps = 1e-5;
  // Mean and variance are those of x itself, over this many positions of the whole tensor, and the gradient passes
  // through them; 0: they are constants.
  int64_t count = 0;
  bool relu = false;  // y is cut off at 0; of the gradients: y is found again to see where
  static constexpr auto fields() {
    return std::tuple{field("eps", &BatchNormAttrs::eps), field("count", &BatchNormAttrs::count),
                      field("relu", &BatchNormAttrs::relu)};
  }
};

struct BatchStatisticsAttrs {
  int64_t count = 1;      // positions that were summed over, of all ranks
  double momentum = 0.1;  // how much of the new statistics goes into the running ones
  static constexpr auto fields() {
    return std::tuple{field("count", &BatchStatisticsAttrs::count), field("momentum", &BatchStatisticsAttrs::momentum)};
  }
};

struct AttentionAttrs {
  bool causal = false;  // query i sees keys 0 .. i + t - s
  double scale = 0;     // of the scores; 0: 1/sqrt(head size)
  // In a ring: the keys and values are the piece of the rank this many places before this one.
  int64_t ring_step = 0;
  static constexpr auto fields() {
    return std::tuple{field("causal", &AttentionAttrs::causal), field("scale", &AttentionAttrs::scale),
                      field("ring_step", &AttentionAttrs::ring_step)};
  }
};

struct RotaryAttrs {
  double theta = 10000;  // a pair's angle at position s is s theta^(-2i/d)
  bool inverse = false;
  static constexpr auto fields() {
    return std::tuple{field("theta", &RotaryAttrs::theta), field("inverse", &RotaryAttrs::inverse)};
  }
};

struct SgdAttrs {
  double momentum = 0.9;
  double weight_decay = 0;
  bool nesterov = false;
  double dampening = 0;
  static constexpr auto fields() {
    return std::tuple{field("momentum", &SgdAttrs::momentum), field("weight_decay", &SgdAttrs::weight_decay),
                      field("nesterov", &SgdAttrs::nesterov), field("dampening", &SgdAttrs::dampening)};
  }
};

struct AdamAttrs {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;
  static constexpr auto fields() {
    return std::tuple{field("beta1", &AdamAttrs::beta1), field("beta2", &AdamAttrs::beta2),
                      field("eps", &AdamAttrs::eps), field("weight_decay", &AdamAttrs::weight_decay),
                      field("decoupled", &AdamAttrs::decoupled)};
  }
};

struct SgdPlainAttrs {
  double weight_decay = 0;
  static constexpr auto fields() { return std::tuple{field("weight_decay", &SgdPlainAttrs::weight_decay)}; }
};

// scale, add_scalar and pow_scalar.
struct ScalarAttrs {
  double value = 1;
  static constexpr auto fields() { return std::tuple{field("value", &ScalarAttrs::value)}; }
};

struct ClampAttrs {
  double low = 0;
  double high = 1;
  static constexpr auto fields() {
    return std::tuple{field("low", &ClampAttrs::low), field("high", &ClampAttrs::high)};
  }
};

// Reductions; the dimensions count from 0 and stand in order.
struct ReduceAttrs {
  std::vector<int64_t> dims;
  bool keep_dims = false;
  static constexpr auto fields() {
    return std::tuple{field("dims", &ReduceAttrs::dims), field("keep_dims", &ReduceAttrs::keep_dims)};
  }
};

struct CumsumAttrs {
  int64_t dim = 0;
  bool reverse = false;
  static constexpr auto fields() {
    return std::tuple{field("dim", &CumsumAttrs::dim), field("reverse", &CumsumAttrs::reverse)};
  }
};

struct ArgmaxAttrs {
  int64_t dim = 0;
  static constexpr auto fields() { return std::tuple{field("dim", &ArgmaxAttrs::dim)}; }
};

struct IotaAttrs {
  DType dtype = DType::kI32;
  Shape shape;
  int64_t dim = 0;
  static constexpr auto fields() {
    return std::tuple{field("dtype", &IotaAttrs::dtype), field("shape", &IotaAttrs::shape),
                      field("dim", &IotaAttrs::dim)};
  }
};

struct GeluAttrs {
  bool approximate = false;
  static constexpr auto fields() { return std::tuple{field("approximate", &GeluAttrs::approximate)}; }
};

struct TransposeAttrs {
  std::vector<int64_t> perm;
  static constexpr auto fields() { return std::tuple{field("perm", &TransposeAttrs::perm)}; }
};

struct SliceAttrs {
  std::vector<int64_t> starts;
  std::vector<int64_t> sizes;
  static constexpr auto fields() {
    return std::tuple{field("starts", &SliceAttrs::starts), field("sizes", &SliceAttrs::sizes)};
  }
};

struct ConcatAttrs {
  int64_t dim = 0;
  static constexpr auto fields() { return std::tuple{field("dim", &ConcatAttrs::dim)}; }
};

struct SplitAttrs {
  int64_t dim = 0;
  std::vector<int64_t> sizes;
  static constexpr auto fields() {
    return std::tuple{field("dim", &SplitAttrs::dim), field("sizes", &SplitAttrs::sizes)};
  }
};

struct PadAttrs {
  std::vector<int64_t> before;
  std::vector<int64_t> after;
  double value = 0;
  static constexpr auto fields() {
    return std::tuple{field("before", &PadAttrs::before), field("after", &PadAttrs::after),
                      field("value", &PadAttrs::value)};
  }
};

struct FillBeyondAttrs {
  int64_t dim = 0;
  int64_t size = 0;           // of the whole dimension
  std::string with = "zero";  // or "lowest", "highest"
  static constexpr auto fields() {
    return std::tuple{field("dim", &FillBeyondAttrs::dim), field("size", &FillBeyondAttrs::size),
                      field("with", &FillBeyondAttrs::with)};
  }
};

struct DropoutAttrs {
  double p = 0.1;  // of an element to become zero
  int64_t seed = 0;
  int64_t stream = 0;  // which use of the seed: one per place in the model
  static constexpr auto fields() {
    return std::tuple{field("p", &DropoutAttrs::p), field("seed", &DropoutAttrs::seed),
                      field("stream", &DropoutAttrs::stream)};
  }
};

// fused_rows; op/row_steps.h reads the steps.
struct FusedRowsAttrs {
  int64_t row_dims = 1;               // leading dimensions that count rows
  std::string steps = {};             // "2=add(0,1){}; 3=gelu(2){approximate=true}"
  std::vector<int64_t> results = {};  // values that the steps make
  static constexpr auto fields() {
    return std::tuple{field("row_dims", &FusedRowsAttrs::row_dims), field("steps", &FusedRowsAttrs::steps),
                      field("results", &FusedRowsAttrs::results)};
  }
};

// Windows that slide over two dimensions. Strides and dilations are [h,w]; padding is [h,w], the same on both sides, or
// [top,bottom,left,right].
struct Conv2dAttrs {
  std::vector<int64_t> stride = {1, 1};
  std::vector<int64_t> padding = {0, 0};
  std::vector<int64_t> dilation = {1, 1};
  int64_t groups = 1;
  std::vector<int64_t> size = {};  // of the gradient ops: [h,w] of what they give, the input or the kernel
  static constexpr auto fields() {
    return std::tuple{field("stride", &Conv2dAttrs::stride), field("padding", &Conv2dAttrs::padding),
                      field("dilation", &Conv2dAttrs::dilation), field("groups", &Conv2dAttrs::groups),
                      field("size", &Conv2dAttrs::size)};
  }
};

struct Pool2dAttrs {
  std::vector<int64_t> kernel = {2, 2};
  std::vector<int64_t> stride = {2, 2};
  std::vector<int64_t> padding = {0, 0};
  bool count_padding = true;       // of avg_pool2d: padded zeros count in the mean
  std::vector<int64_t> size = {};  // of avg_pool2d_grad: [h,w] of the operand
  static constexpr auto fields() {
    return std::tuple{field("kernel", &Pool2dAttrs::kernel), field("stride", &Pool2dAttrs::stride),
                      field("padding", &Pool2dAttrs::padding), field("count_padding", &Pool2dAttrs::count_padding),
                      field("size", &Pool2dAttrs::size)};
  }
};

}  // namespace trireme
