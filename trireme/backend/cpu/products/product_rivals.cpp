#include "trireme/backend/cpu/products/product_rivals.h"

#include <algorithm>

#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/quickest.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

double flops_of(int64_t m, int64_t n, int64_t k) {
  return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}
double flops_of(const Gemm& g) {
  return flops_of(g.m, g.n, g.k);
}

// So much of a block that it takes about a hundredth of a second. Its sides and sums stay long enough for the speed of
// the whole.
Gemm shortened(Gemm block) {
  constexpr double kMostFlops = 1e9;
  while (flops_of(block) > kMostFlops) {
    int64_t& longest =
        *std::max({&block.m, &block.n, &block.k}, [](const int64_t* a, const int64_t* b) { return *a < *b; });
    longest = (longest + 1) / 2;
  }
  return block;
}

// Matrices for a block, and room, in memory as a plan's: rows that lie far apart take longer in small pages.
class Sample {
 public:
  Sample(const Product& product, Way way) : way_(way), block_(shortened(largest_block(product, way))) {
    const auto bytes = [](int64_t floats) { return aligned(floats * static_cast<int64_t>(sizeof(float))); };
    const int64_t a = bytes((block_.transpose_a ? block_.k : block_.m) * block_.lda);
    const int64_t b = bytes((block_.transpose_b ? block_.n : block_.k) * block_.ldb);
    const int64_t c = bytes(block_.m * block_.ldc);
    memory_ = cpu_device().allocate(kAlign + a + b + c + bytes(blocked_floats(block_.m, block_.n, block_.k)));
    std::ranges::fill(memory_.bytes, std::byte{});
    std::byte* const first = align(memory_.bytes.data());
    const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(first + offset); };
    // Not zeros, and small enough for sums to stay far from overflow.
    for (int64_t i = 0; i < (a + b) / 4; ++i) at(0)[i] = static_cast<float>(i % 17 - 8) / 16;
    block_.a = at(0);
    block_.b = at(a);
    block_.c = at(a + b);
    room_ = at(a + b + c);
  }

  double flops() const { return flops_of(block_); }
  void multiply() const {
    if (way_ == Way::kSgemm) {
      gemm(block_);
    } else {
      multiply_in_blocks(block_, room_);
    }
  }

 private:
  Way way_;
  Gemm block_;
  DeviceMemory memory_;
  float* room_ = nullptr;
};

}  // namespace

std::string measured_key(const Product& p) {
  if (flops_of(p.m, p.n, p.k) < kLeastMeasuredFlops) return "";
  return fmt::format("f32:{}x{}x{}:{}{}{}", p.m, p.n, p.k, p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n',
                     p.onto ? "+" : "");
}

std::string_view quickest_way(const Product& product, Way usual) {
  constexpr double kFlopsWorthASecond = 4e11, kLeastSeconds = 0.08, kMostSeconds = 0.3;
  const Sample samples[] = {{product, Way::kSgemm}, {product, Way::kBlocks}};
  const double seconds =
      std::clamp(flops_of(product.m, product.n, product.k) / kFlopsWorthASecond, kLeastSeconds, kMostSeconds);
  const Contest contest{.ways = 2,
                        .usual = usual == Way::kSgemm ? 0U : 1U,
                        .seconds = seconds,
                        .work = {samples[0].flops(), samples[1].flops()}};
  return quickest_of(contest, [&](size_t way) { samples[way].multiply(); }) == 0 ? "sgemm" : "blocks";
}

}  // namespace trireme::cpu
