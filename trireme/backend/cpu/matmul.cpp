// matmul and linear_weight_grad in f32 through gemm.
#include "trireme/backend/cpu/gemm.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

void run_matmul(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<MatMulAttrs>();
  const Shape& a = args.in[0].type.shape;
  const Shape& b = args.in[1].type.shape;
  const Shape& y = args.out[0].type.shape;
  const int ra = a.rank();
  const int rb = b.rank();
  const bool batched = rb > 2;
  Gemm g;
  g.m = y[ra - 2];
  g.n = y[ra - 1];
  g.k = attrs.transpose_a ? a[ra - 2] : a[ra - 1];
  g.a = args.in[0].as<float>().data();
  g.b = args.in[1].as<float>().data();
  g.c = args.out[0].as<float>().data();
  g.lda = a[ra - 1];
  g.ldb = b[rb - 1];
  g.ldc = g.n;
  g.transpose_a = attrs.transpose_a;
  g.transpose_b = attrs.transpose_b;
  int64_t batch = 1;
  for (int dim = 0; dim < ra - 2; ++dim) batch *= a[dim];
  if (!batched && !attrs.transpose_a) {
    g.m *= batch;  // one b for all: the batches are more rows
    batch = 1;
  }
  batched_gemm(g, batch, {g.m * g.k, batched ? g.k * g.n : 0, g.m * g.n}, args.pool);
}

void run_linear_weight_grad(const KernelArgs& args) {
  const Shape& w = args.out[0].type.shape;
  Gemm g;
  g.m = w[0];
  g.n = w[1];
  g.k = g.m == 0 ? 0 : args.in[0].elements() / g.m;
  g.a = args.in[0].as<float>().data();
  g.b = args.in[1].as<float>().data();
  g.c = args.out[0].as<float>().data();
  g.lda = g.m;
  g.ldb = g.n;
  g.ldc = g.n;
  g.transpose_a = true;
  batched_gemm(g, 1, {}, args.pool);
}

}  // namespace

extern const Kernel matmul_sgemm{"matmul", "matmul.sgemm", not_all_f32, nullptr, run_matmul};
extern const Kernel linear_weight_grad_sgemm{"linear_weight_grad", "linear_weight_grad.sgemm",
                                             not_all_f32, nullptr, run_linear_weight_grad};

}  // namespace trireme::cpu
