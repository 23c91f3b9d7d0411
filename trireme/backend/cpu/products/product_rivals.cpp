#include "trireme/backend/cpu/products/product_rivals.h"

#include <vector>

#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/quickest.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

double flops_of(double m, double n, double k) {
  return 2 * m * n * k;
}

// Matrices for a block, and room.
class Sample {
 public:
  explicit Sample(const Product& product) : block_(largest_block(product)) {
    const auto bytes = [](int64_t floats) { return aligned(floats * static_cast<int64_t>(sizeof(float))); };
    const int64_t a = bytes((block_.transpose_a ? block_.k : block_.m) * block_.lda);
    const int64_t b = bytes((block_.transpose_b ? block_.n : block_.k) * block_.ldb);
    const int64_t c = bytes(block_.m * block_.ldc);
    memory_.resize(static_cast<size_t>(kAlign + a + b + c + bytes(blocked_floats(block_.m, block_.n, block_.k))));
    std::byte* const first = align(memory_.data());
    const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(first + offset); };
    // Not zeros, and small enough for sums to stay far from overflow.
    for (int64_t i = 0; i < (a + b) / 4; ++i) at(0)[i] = static_cast<float>(i % 17 - 8) / 16;
    block_.a = at(0);
    block_.b = at(a);
    block_.c = at(a + b);
    room_ = at(a + b + c);
  }

  void multiply(Way way) const {
    if (way == Way::kSgemm) {
      gemm(block_);
    } else {
      multiply_in_blocks(block_, room_);
    }
  }

 private:
  Gemm block_;
  std::vector<std::byte> memory_;
  float* room_ = nullptr;
};

}  // namespace

std::string measured_key(const Product& p) {
  const double flops = flops_of(static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k));
  if (flops < kLeastMeasuredFlops) return "";
  return fmt::format("f32:{}x{}x{}:{}{}{}", p.m, p.n, p.k, p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n',
                     p.onto ? "+" : "");
}

std::string_view quickest_way(const Product& product, Way usual) {
  const Sample sample(product);
  const size_t best = quickest_of(2, usual == Way::kSgemm ? 0 : 1,
                                  [&](size_t way) { sample.multiply(way == 0 ? Way::kSgemm : Way::kBlocks); });
  return best == 0 ? "sgemm" : "blocks";
}

}  // namespace trireme::cpu
