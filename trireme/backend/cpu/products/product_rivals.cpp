#include "trireme/backend/cpu/products/product_rivals.h"

#include <algorithm>
#include <vector>

#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/tiled_product.h"
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
    room_bytes_ = bytes(blocked_floats(block_.m, block_.n, block_.k));
    memory_ = cpu_device().allocate(kAlign + a + b + c + room_bytes_);
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
    switch (way_) {
      case Way::kSgemm:
        return gemm(block_);
      case Way::kBlocks:
        return multiply_in_blocks(block_, room_);
      case Way::kTiles:
        return multiply_in_tiles(block_, reinterpret_cast<std::byte*>(room_), room_bytes_);
    }
  }

 private:
  Way way_;
  Gemm block_;
  DeviceMemory memory_;
  int64_t room_bytes_ = 0;
  float* room_ = nullptr;
};

}  // namespace

std::string measured_key(const Product& p) {
  if (flops_of(p.m, p.n, p.k) < kLeastMeasuredFlops) return "";
  return fmt::format("f32:{}x{}x{}:{}{}{}", p.m, p.n, p.k, p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n',
                     p.onto ? "+" : "");
}

std::string_view quickest_way(const Product& product, std::span<const Cores> others, Way usual) {
  constexpr double kFlopsWorthASecond = 4e11, kLeastSeconds = 0.08, kMostSeconds = 0.3;
  constexpr std::string_view kNames[] = {"sgemm", "blocks", "tiles"};  // of Way
  std::vector<Way> ways{Way::kSgemm, Way::kBlocks};
  if (why_no_tiles(product).empty()) ways.push_back(Way::kTiles);
  std::vector<std::vector<Sample>> samples(others.size() + 1);  // of each thread
  for (auto& of_thread : samples) {
    for (const Way way : ways) of_thread.emplace_back(product, way);
  }
  std::vector<double> work;
  for (const Sample& sample : samples.front()) work.push_back(sample.flops());
  const double seconds =
      std::clamp(flops_of(product.m, product.n, product.k) / kFlopsWorthASecond, kLeastSeconds, kMostSeconds) / 2 *
      static_cast<double>(ways.size());
  const Contest contest{
      .ways = ways.size(), .usual = usual == Way::kSgemm ? 0U : 1U, .seconds = seconds, .work = work, .others = others};
  return kNames[quickest_of(contest, [&](size_t way, size_t thread) { samples[thread][way].multiply(); })];
}

}  // namespace trireme::cpu
