// multi_linear and its gradients in f32 through gemm: the parts of the weight side by side are one matrix.
#include "trireme/backend/cpu/gemm.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"

namespace trireme::cpu {
namespace {

// c = op(a) op(b), of m by n, summed over k.
void run(const KernelArgs& args, int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) {
  Gemm g;
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = args.in[0].as<float>().data();
  g.b = args.in[1].as<float>().data();
  g.c = args.out[0].as<float>().data();
  g.lda = transpose_a ? m : k;
  g.ldb = transpose_b ? k : n;
  g.ldc = n;
  g.transpose_a = transpose_a;
  g.transpose_b = transpose_b;
  batched_gemm(g, 1, {}, args.pool);
}

int64_t parts(const Shape& w) { return w[1] * w[2]; }
int64_t rows(const View& x, int64_t width) { return width == 0 ? 0 : x.elements() / width; }

void run_forward(const KernelArgs& args) {
  const Shape& w = args.in[1].type.shape;
  run(args, rows(args.in[0], w[0]), parts(w), w[0], false, false);
}
void run_input_grad(const KernelArgs& args) {
  const Shape& w = args.in[1].type.shape;
  run(args, rows(args.in[0], parts(w)), w[0], parts(w), false, true);
}
void run_weight_grad(const KernelArgs& args) {
  const Shape& w = args.out[0].type.shape;
  run(args, w[0], parts(w), rows(args.in[0], w[0]), true, false);
}

}  // namespace

extern const Kernel multi_linear_sgemm{"multi_linear", "multi_linear.sgemm", not_all_f32, nullptr, run_forward};
extern const Kernel multi_linear_input_grad_sgemm{"multi_linear_input_grad", "multi_linear_input_grad.sgemm", not_all_f32,
                                                  nullptr, run_input_grad};
extern const Kernel multi_linear_weight_grad_sgemm{"multi_linear_weight_grad", "multi_linear_weight_grad.sgemm",
                                                   not_all_f32, nullptr, run_weight_grad};

}  // namespace trireme::cpu
