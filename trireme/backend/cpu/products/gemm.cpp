#include "trireme/backend/cpu/products/gemm.h"

#include <dnnl.h>
#include <omp.h>

#include "trireme/base/error.h"
#include "trireme/base/signal_stack.h"

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
      return dnnl_cpu_isa_avx512_core_bf16;
    case Isa::kAmx:
      return dnnl_cpu_isa_all;
  }
  return dnnl_cpu_isa_all;
}

int effective() {
  prepare_onednn();
  return static_cast<int>(dnnl_get_effective_cpu_isa());
}

}  // namespace

void prepare_onednn() {
  // oneDNN takes its instruction set once, before its first use. What a test has capped by then must not stay, nor make
  // the ranks of a job compute with different ones.
  [[maybe_unused]] static const auto capped = dnnl_set_max_cpu_isa(dnnl_isa(process_isa()));
  [[maybe_unused]] thread_local const bool prepared = [] {
    omp_set_num_threads(1);
    have_signal_stack();
    return true;
  }();
}

bool onednn_has(Isa isa) {
  const auto wanted = static_cast<int>(isa == Isa::kAmx ? dnnl_cpu_isa_avx512_core_amx : dnnl_isa(isa));
  return (effective() & wanted) == wanted;
}

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.ldc + j] = g.beta == 0 ? 0 : g.beta * g.c[i * g.ldc + j];
    }
    return;
  }
  prepare_onednn();
  const dnnl_status_t status = dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha,
                                          g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  invariant(status == dnnl_success, "matmul: dnnl_sgemm returned status {} (m {}, n {}, k {})",
            static_cast<int>(status), g.m, g.n, g.k);
}

}  // namespace trireme::cpu
