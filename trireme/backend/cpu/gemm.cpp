#include "trireme/backend/cpu/gemm.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>

#include "trireme/backend/cpu/parallel.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

dnnl_cpu_isa_t dnnl_isa(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return dnnl_cpu_isa_sse41;
    case Isa::kAvx2:
      return dnnl_cpu_isa_avx2;
    case Isa::kAvx512:
      return dnnl_cpu_isa_avx512_core;
    case Isa::kAvx512Bf16:
      return dnnl_cpu_isa_all;
  }
  return dnnl_cpu_isa_all;
}

}  // namespace

Blocks blocks_of(int64_t m, int64_t n, int64_t k, int64_t batch) {
  constexpr double kBlockFlops = 512e6;
  constexpr int64_t kMaxBlocks = 16;
  constexpr int64_t kMinSide = 128;
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int64_t wanted = std::min({kMaxBlocks, static_cast<int64_t>(flops / kBlockFlops),
                                   std::max<int64_t>(1, kMaxBlocks / batch)});
  const auto half = [](int64_t side) { return ((side + 1) / 2 + 15) / 16 * 16; };
  Blocks b{m, n, 1, 1};
  while (b.count_m * b.count_n * 2 <= wanted) {
    int64_t& side = b.m >= b.n ? b.m : b.n;
    if (side < 2 * kMinSide) break;
    side = half(side);
    b.count_m = (m + b.m - 1) / b.m;
    b.count_n = (n + b.n - 1) / b.n;
  }
  return b;
}

void prepare_onednn() {
  // oneDNN takes its instruction set once, before its first use.
  [[maybe_unused]] static const auto capped = dnnl_set_max_cpu_isa(dnnl_isa(isa()));
  thread_local const bool alone = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(alone);
}

bool onednn_has(Isa isa) {
  prepare_onednn();
  const auto bits = [](dnnl_cpu_isa_t set) { return static_cast<int>(set); };
  const int wanted = bits(isa == Isa::kAvx512Bf16 ? dnnl_cpu_isa_avx512_core_bf16 : dnnl_isa(isa));
  return (bits(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j)
        g.c[i * g.ldc + j] = g.beta == 0 ? 0 : g.beta * g.c[i * g.ldc + j];
    }
    return;
  }
  prepare_onednn();
  const dnnl_status_t status =
      dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a,
                 g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  invariant(status == dnnl_success, "matmul: dnnl_sgemm returned status {} (m {}, n {}, k {})",
            static_cast<int>(status), g.m, g.n, g.k);
}

void batched_gemm(const Gemm& first, int64_t batch, const BatchSteps& steps, ThreadPool* pool) {
  if (batch == 0) return;
  const Blocks blocks = blocks_of(first.m, first.n, first.k, batch);
  // Many small products make one task.
  const double flops = 2.0 * static_cast<double>(first.m) * static_cast<double>(first.n * first.k);
  const int64_t per_product = blocks.count_m * blocks.count_n;
  const int64_t group =
      per_product > 1 ? 1 : std::clamp<int64_t>(static_cast<int64_t>(1e6 / (flops + 1)), 1, batch);
  const int64_t items = batch * per_product;
  run_tasks(pool, (items + group - 1) / group, [&](int64_t task, int) {
    for (int64_t item = task * group; item < std::min(items, (task + 1) * group); ++item) {
      const int64_t p = item / per_product;
      const int64_t i = item % per_product / blocks.count_n * blocks.m;
      const int64_t j = item % blocks.count_n * blocks.n;
      Gemm g = first;
      g.m = std::min(blocks.m, first.m - i);
      g.n = std::min(blocks.n, first.n - j);
      g.a += p * steps.a + (g.transpose_a ? i : i * g.lda);
      g.b += p * steps.b + (g.transpose_b ? j * g.ldb : j);
      g.c += p * steps.c + i * g.ldc + j;
      gemm(g);
    }
  });
}

}  // namespace trireme::cpu
